//! Layouts against the headers of `libxen-dev`, and bytes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::string::String;
use std::vec::Vec;
use std::{env, format, fs, println, process};

use super::*;
use crate::memory::E820Entry;
use crate::start::StartInfo;

/// A structure as its declaration describes it.
pub(crate) trait Described: Wire {
    /// Its type in C.
    const C: &str;
    /// Name in C, offset and size of each field.
    const FIELDS: &[(&str, usize, usize)];
}

/// An expression of C and what it comes to.
type Expectation = (String, i128);

fn structure<T: Described>(list: &mut Vec<Expectation>) {
    list.push((format!("sizeof({})", T::C), T::BYTES as i128));
    for (member, offset, bytes) in T::FIELDS {
        list.push((format!("offsetof({}, {member})", T::C), *offset as i128));
        list.push((format!("sizeof((({} *)0)->{member})", T::C), *bytes as i128));
    }
}

fn structures() -> Vec<Expectation> {
    let mut list = Vec::new();
    macro_rules! all {
        ($($module:ident: $($name:ident)*;)*) => {
            $($( structure::<$module::$name>(&mut list); )*)*
        };
    }
    all! {
        hypercall: MulticallEntry;
        version: CompileInfo PlatformParameters FeatureInfo;
        mmu: MmuUpdate MmuExtended;
        callback: TrapInfo Register Unregister;
        memory: Reservation Exchange MemoryDomain MachphysMapping MachphysList MemoryMap
            AddToPhysmap RemoveFromPhysmap;
        event: AllocUnbound BindInterdomain BindVirq BindIpi Close Send Status BindVcpu Unmask Reset
            InitControl ExpandArray SetPriority FifoControlBlock;
        grant: EntryV1 EntryV2 EntryV2SubPage EntryV2Transitive Map Unmap UnmapAndReplace SetupTable
            DumpTable Transfer CopySide CopyPages QuerySize SetVersion GetVersion GetStatusFrames
            Swap;
        start: StartInfo;
        shared: ArchVcpuInfo VcpuTimeInfo VcpuInfo ArchSharedInfo SharedInfo RunstateInfo;
        vcpu: RegisterRunstate RegisterTime RegisterInfo PeriodicTimer SingleshotTimer PhysicalId
            UserRegisters GuestContext IretFrame;
        scheduler: Shutdown Poll Watchdog;
        physical: SetIopl SetIobitmap PirqEoiFrame;
        console: ConsoleRing;
        store: Header StoreRing;
        ring: RingHeader;
        block: Segment Request Discard Indirect Response;
        net: TransmitRequest TransmitResponse ReceiveRequest ReceiveResponse ExtraInfo;
    }
    list
}

fn constants() -> Vec<Expectation> {
    let mut list = Vec::new();
    macro_rules! all {
        ($($module:ident: $($name:ident)*;)*) => {
            [domain::TABLE, $($( $module::$name::TABLE ),*),*]
        };
    }
    let tables = all! {
        hypercall: number assist_command assist;
        errno: number;
        version: command length;
        mmu: update extended flush reserved;
        callback: command kind flag;
        segment: selector base gdt;
        cpuid: leaf;
        feature: bit;
        memory: command space;
        event: command virq state limit fifo;
        grant: command status entry reserved map copy;
        start: flag limit;
        shared: clock runstate runstate_flag;
        vcpu: command singleshot context;
        scheduler: command reason;
        physical: command;
        console: command;
        bus: state;
        store: kind limit feature;
        block: operation status limit disk;
        note: kind;
        net: transmit receive status extra gso limit;
    };
    for (name, value) in tables.into_iter().flatten() {
        list.push((String::from(*name), *value));
    }
    list
}

/// Where `xen/xen.h` is, if the headers are here.
fn headers() -> Option<PathBuf> {
    let chosen = env::var_os("BIVOUAC_XEN_HEADERS").map(PathBuf::from);
    let folder = chosen.unwrap_or_else(|| PathBuf::from("/usr/include"));
    folder.join("xen/xen.h").exists().then_some(folder)
}

/// A program that prints each expression's value on a line.
fn program(list: &[Expectation]) -> String {
    let mut source = String::from(
        "#define __XEN_INTERFACE_VERSION__ 0x00040e00\n\
         #include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n",
    );
    for header in [
        "xen",
        "callback",
        "elfnote",
        "errno",
        "event_channel",
        "features",
        "grant_table",
        "memory",
        "physdev",
        "sched",
        "vcpu",
        "version",
        "arch-x86/cpuid",
        "io/blkif",
        "io/console",
        "io/netif",
        "io/xenbus",
        "io/xs_wire",
    ] {
        writeln!(source, "#include <xen/{header}.h>").expect("memory takes it");
    }
    // A ring without its entries.
    source.push_str("struct ring_header { RING_IDX req_prod, req_event, rsp_prod, rsp_event;\n");
    source.push_str("uint8_t pvt[4]; uint8_t __pad[44]; };\n");
    source.push_str("_Static_assert(offsetof(struct blkif_sring, ring) == 64, \"\");\n");
    source.push_str("_Static_assert(offsetof(struct blkif_sring, pvt) == 16, \"\");\n");
    source.push_str("int main(void) {\n");
    for (expression, _) in list {
        writeln!(source, "printf(\"%lld\\n\", (long long)({expression}));").expect("likewise");
    }
    source.push_str("return 0; }\n");
    source
}

/// What the program prints.
fn compiled(source: &str, headers: &Path) -> String {
    let work = env::temp_dir().join(format!("biv-xen-abi-{}", process::id()));
    fs::create_dir_all(&work).expect("there is a temporary directory");
    fs::write(work.join("layout.c"), source).expect("it can be written");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(&compiler)
        .args(["-std=gnu11", "-w", "-I"])
        .arg(headers)
        .args(["-o", "layout", "layout.c"])
        .current_dir(&work)
        .output()
        .expect("there is a C compiler");
    let complaint = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{compiler}: {complaint}");
    let output = Command::new(work.join("layout")).output().expect("it can be started");
    let _ = fs::remove_dir_all(&work);
    String::from_utf8(output.stdout).expect("numbers are text")
}

#[test]
fn everything_is_as_in_the_headers_of_xen() {
    let Some(headers) = headers() else {
        return println!("no xen/xen.h here (Debian's libxen-dev, or BIVOUAC_XEN_HEADERS)");
    };
    let mut list = structures();
    list.extend(constants());
    let printed = compiled(&program(&list), &headers);
    assert_eq!(printed.lines().count(), list.len());
    for ((expression, expected), line) in list.iter().zip(printed.lines()) {
        let value: i64 = line.parse().expect("the program prints numbers");
        // C's constants have types of their own.
        let same = i128::from(value) == *expected || i128::from(value as u64) == *expected;
        assert!(same, "{expression} is {value} there and {expected} here");
    }
}

#[test]
fn a_structure_is_the_bytes_that_it_is_made_of() {
    let mut bytes = [0_u8; 1168];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (index % 251) as u8;
    }
    let info = StartInfo::read(&bytes, 0).expect("there are enough bytes");
    assert_eq!(info.pages, u64::from_le_bytes(*b"\x20\x21\x22\x23\x24\x25\x26\x27"));
    assert_eq!(info.store_port, 0x4342_4140);
    let again = info.to_bytes();
    for (index, (is, was)) in again.iter().zip(&bytes).enumerate() {
        // Padding behind the three 32-bit fields.
        let padding = [52..56, 68..72, 84..88].iter().any(|hole| hole.contains(&index));
        assert_eq!(*is, if padding { 0 } else { *was }, "byte {index}");
    }
}

#[test]
fn what_is_not_all_there_is_not_read_or_written() {
    let short = [0; StartInfo::BYTES - 1];
    assert_eq!(StartInfo::read(&short, 0), None);
    assert_eq!(u32::read(&[1, 0, 0, 0], 0), Some(1));
    assert_eq!(u32::read(&[1, 0, 0, 0], 1), None);
    assert_eq!(u32::read(&[1, 0, 0, 0], usize::MAX), None);
    let mut place = [0xff; 4];
    assert_eq!(Mfn(1).write(&mut place, 0), None);
    assert_eq!(place, [0xff; 4]);
    assert_eq!(0x1234_u16.write(&mut place, 2), Some(()));
    assert_eq!(place, [0xff, 0xff, 0x34, 0x12]);
}

#[test]
fn entries_of_a_memory_map_are_not_padded() {
    let entry = E820Entry { start: 0x1000, size: 0x2000, kind: E820Entry::MEMORY };
    let mut bytes = [0xff; 24];
    assert_eq!(entry.write(&mut bytes, 0), Some(()));
    assert_eq!(bytes[16..], [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(E820Entry::read(&bytes, 0), Some(entry));
}

#[test]
fn rings_have_as_many_entries_as_the_headers_compute() {
    let entry = |bytes: u32| ring::entries(PAGE_BYTES, bytes as usize) as u32;
    assert_eq!(entry(block::limit::ENTRY_BYTES), block::limit::PAGE_ENTRIES);
    assert_eq!(entry(net::limit::TRANSMIT_ENTRY_BYTES), net::limit::TRANSMIT_PAGE_ENTRIES);
    assert_eq!(entry(net::limit::RECEIVE_ENTRY_BYTES), net::limit::RECEIVE_PAGE_ENTRIES);
    assert_eq!(ring::entries(64, 8), 0);
    assert_eq!(ring::entries(72, 8), 1);
    assert_eq!(ring::entries(usize::MAX, 0), 0);
}

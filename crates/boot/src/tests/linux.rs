//! Linux, from a bzImage and from an ELF file.

use super::images::{Bz, KERNEL_MAP, LINKED, OLD, PLACES, relocations, vmlinux};
use super::*;
use crate::unpack::{Format, tests::FORMATS};

/// Offsets in the zero page (Documentation/arch/x86/zero-page.rst).
mod zero {
    pub const RSDP: u64 = 0x70;
    pub const EXT_RAMDISK_IMAGE: u64 = 0xc0;
    pub const E820_ENTRIES: u64 = 0x1e8;
    pub const LOADER: u64 = 0x210;
    pub const LOADFLAGS: u64 = 0x211;
    pub const RAMDISK_IMAGE: u64 = 0x218;
    pub const RAMDISK_SIZE: u64 = 0x21c;
    pub const COMMAND_LINE: u64 = 0x228;
    pub const SETUP_DATA: u64 = 0x250;
    pub const E820: u64 = 0x2d0;
}

const KASLR_FLAG: u8 = 2;

fn zero_page(loaded: &Loaded) -> u64 {
    loaded.entry.gprs[gpr::RSI]
}

/// The kernel's segments are in memory, relocated by `linear`.
fn check_kernel(machine: &Machine, loaded: &Loaded, has_negated: bool) {
    let kernel = vmlinux();
    let linear = loaded.linear_offset;
    let moved = |index: usize| (LINKED + PLACES[index]).wrapping_add_signed(loaded.physical_offset);
    assert_eq!(machine.u64(moved(0)), OLD[0].wrapping_add(linear));
    if has_negated {
        assert_eq!(machine.u32(moved(1)), (OLD[1] as u32).wrapping_sub(linear as u32));
    }
    assert_eq!(machine.u32(moved(2)), (OLD[2] as u32).wrapping_add(linear as u32));
    for part in &kernel.parts {
        let at = part.physical.wrapping_add_signed(loaded.physical_offset);
        assert!(machine.bytes(at, 0x1000) == part.bytes[..0x1000] || at == moved(2) & !0xfff);
    }
}

#[test]
fn every_compression_boots() {
    for format in FORMATS {
        let machine = Machine::new(64, 0);
        let kernel = Bz::new(format).build();
        let loaded = machine.load(&machine.request(&kernel)).unwrap();
        assert_eq!(loaded.protocol, Protocol::Linux64);
        assert_eq!((loaded.physical_offset, loaded.linear_offset), (0, 0));
        assert_eq!(loaded.entry.rip, LINKED + 0x40);
        check_kernel(&machine, &loaded, true);
    }
}

#[test]
fn the_entry_is_in_long_mode_with_flat_segments() {
    let machine = Machine::new(64, 0);
    let kernel = Bz::new(Format::Gzip).build();
    let loaded = machine.load(&machine.request(&kernel)).unwrap();
    let entry = loaded.entry;
    assert_eq!(entry.mode, Mode::Long64);
    assert_eq!((entry.cr0 >> 31, entry.cr0 & 1, entry.cr4, entry.efer), (1, 1, 0x20, 0x500));
    assert_eq!(entry.rflags, 2);
    assert_eq!(entry.segments[1].selector, 0x10);
    assert_eq!(entry.segments[3].selector, 0x18);
    assert_eq!(machine.u64(entry.gdt.base + 0x10), 0x00af_9b00_0000_ffff);
    assert_eq!(machine.u64(entry.gdt.base + 0x18), 0x00cf_9300_0000_ffff);
    for linear in
        [0, 0x1000, zero_page(&loaded), loaded.kernel.start, loaded.kernel.end, 0xfee0_0000]
    {
        assert_eq!(machine.translate(&entry, linear), Some(linear), "{linear:#x}");
    }
    assert_eq!(machine.translate(&entry, 1 << 32), None);
}

#[test]
fn the_zero_page_describes_the_machine() {
    let machine = Machine::new(64, 0);
    let kernel = Bz::new(Format::Zstd).build();
    let initrd = vec![0xab; 100_001];
    let second = vec![0xcd; 3];
    let modules =
        [Module { data: &initrd, command_line: "" }, Module { data: &second, command_line: "" }];
    let request = Request {
        command_line: "console=ttyS0 nokaslr",
        modules: &modules,
        rsdp: Some(GuestAddress(0xe_0000)),
        randomness: randomness(1, 1),
        ..machine.request(&kernel)
    };
    let loaded = machine.load(&request).unwrap();
    let page = zero_page(&loaded);
    assert_eq!(page % 4096, 0);
    assert_eq!(machine.u64(page + zero::RSDP), 0xe_0000);
    assert_eq!(machine.u8(page + zero::LOADER), 0xff);
    assert_eq!(machine.u8(page + zero::LOADFLAGS) & (KASLR_FLAG | 1), 1);
    let command_line = u64::from(machine.u32(page + zero::COMMAND_LINE));
    assert_eq!(machine.string(command_line), "console=ttyS0 nokaslr");

    assert_eq!(usize::from(machine.u8(page + zero::E820_ENTRIES)), machine.map.len());
    for (index, entry) in machine.map.iter().enumerate() {
        let at = page + zero::E820 + index as u64 * 20;
        assert_eq!((machine.u64(at), machine.u64(at + 8)), (entry.start, entry.size));
        assert_eq!(machine.u32(at + 16), entry.kind as u32);
    }

    let image = u64::from(machine.u32(page + zero::RAMDISK_IMAGE));
    assert_eq!(image % 4096, 0);
    assert_eq!(machine.u32(page + zero::RAMDISK_SIZE), 100_004 + 4);
    assert_eq!(machine.u32(page + zero::EXT_RAMDISK_IMAGE), 0);
    assert!(machine.bytes(image, initrd.len()) == initrd);
    assert_eq!(machine.bytes(image + 100_001, 7), [0, 0, 0, 0xcd, 0xcd, 0xcd, 0]);

    let seed = machine.u64(page + zero::SETUP_DATA);
    assert_eq!((machine.u64(seed), machine.u32(seed + 8), machine.u32(seed + 12)), (0, 9, 32));
    assert_eq!(machine.bytes(seed + 16, 32), [0x5e; 32]);
}

#[test]
fn a_kernel_with_relocations_is_randomized() {
    for has_negated in [true, false] {
        let mut bz = Bz::new(Format::Lz4);
        bz.unpacked = vmlinux().build();
        bz.unpacked.extend(relocations(has_negated));
        let kernel = bz.build();
        let mut seen = std::collections::BTreeSet::new();
        for random in 0..20 {
            let machine = Machine::new(64, 0);
            let randomness = randomness(random, random * 7919);
            let loaded = machine.load(&Request { randomness, ..machine.request(&kernel) }).unwrap();
            check_kernel(&machine, &loaded, has_negated);
            assert_eq!(loaded.kernel.start % (2 * MIB), 0);
            assert!(loaded.kernel.start >= LINKED && loaded.kernel.end <= 64 * MIB);
            assert_eq!(loaded.linear_offset % (2 * MIB), 0);
            assert!(LINKED + loaded.linear_offset + 0x40_0000 <= 1 << 30);
            assert_eq!(
                loaded.entry.rip,
                (LINKED + 0x40).wrapping_add_signed(loaded.physical_offset)
            );
            let flags = machine.u8(zero_page(&loaded) + zero::LOADFLAGS);
            assert_eq!(flags & KASLR_FLAG, KASLR_FLAG);
            seen.insert((loaded.physical_offset, loaded.linear_offset));
        }
        assert!(seen.len() > 15, "{seen:?}");
    }
}

#[test]
fn a_randomized_kernel_above_4_gib_is_mapped() {
    let machine = Machine::new(20, 2048);
    let kernel = Bz::new(Format::Lz4).build();
    let request = Request { randomness: randomness(900, 3), ..machine.request(&kernel) };
    let loaded = machine.load(&request).unwrap();
    assert!(loaded.kernel.start > 1 << 32);
    for linear in [0, loaded.kernel.start, loaded.entry.rip, loaded.kernel.end - 1] {
        assert_eq!(machine.translate(&loaded.entry, linear), Some(linear));
    }
    check_kernel(&machine, &loaded, true);
}

#[test]
fn randomness_never_puts_one_thing_on_another() {
    let kernel = Bz::new(Format::Lz4).build();
    let initrd = vec![0x11; 20 << 20];
    let modules = [Module { data: &initrd, command_line: "" }];
    for random in 0..40 {
        let machine = Machine::new(48, 0);
        let randomness = randomness(random, random);
        let request = Request { randomness, modules: &modules, ..machine.request(&kernel) };
        let loaded = machine.load(&request).unwrap();
        check_kernel(&machine, &loaded, true);
        let image = u64::from(machine.u32(zero_page(&loaded) + zero::RAMDISK_IMAGE));
        assert!(loaded.kernel.end <= image || loaded.kernel.start >= image + (20 << 20));
        assert!(machine.bytes(image, initrd.len()) == initrd);
    }
}

#[test]
fn randomization_can_be_declined() {
    let kernel = Bz::new(Format::Lz4).build();
    let mut plain = Bz::new(Format::Lz4);
    plain.unpacked = vmlinux().build();
    let without_relocations = plain.build();
    let not_at_all = |kernel: &[u8], command_line: &str| {
        let machine = Machine::new(64, 0);
        let randomness = randomness(11, 13);
        let request = Request { randomness, command_line, ..machine.request(kernel) };
        let loaded = machine.load(&request).unwrap();
        let flag = machine.u8(zero_page(&loaded) + zero::LOADFLAGS) & KASLR_FLAG;
        (loaded.physical_offset == 0, loaded.linear_offset == 0, flag == 0)
    };
    assert_eq!(not_at_all(&kernel, "quiet"), (false, false, false));
    assert_eq!(not_at_all(&kernel, "a nokaslr b"), (true, true, true));
    assert_eq!(not_at_all(&kernel, "xnokaslr"), (false, false, false));
    assert_eq!(not_at_all(&kernel, "mem=64M"), (true, false, false));
    assert_eq!(not_at_all(&without_relocations, "quiet"), (true, true, true));
}

#[test]
fn a_relocatable_kernel_goes_where_it_fits() {
    let machine = Machine::new(16, 0);
    let kernel = Bz::new(Format::Lz4).build();
    let loaded = machine.load(&machine.request(&kernel)).unwrap();
    assert_eq!((loaded.kernel.start, loaded.linear_offset), (2 * MIB, 0));
    check_kernel(&machine, &loaded, true);
}

#[test]
fn an_initrd_that_does_not_fit_low_goes_high() {
    let machine = Machine::new(32, 64);
    let kernel = Bz::new(Format::Lz4).build();
    let initrd = vec![3; 40 << 20];
    let modules = [Module { data: &initrd, command_line: "" }];
    let loaded = machine.load(&Request { modules: &modules, ..machine.request(&kernel) }).unwrap();
    let page = zero_page(&loaded);
    assert_eq!(machine.u32(page + zero::EXT_RAMDISK_IMAGE), 1);
    let image = 1 << 32 | u64::from(machine.u32(page + zero::RAMDISK_IMAGE));
    assert!(machine.bytes(image, initrd.len()) == initrd);
}

#[test]
fn an_elf_kernel_boots_without_a_header() {
    let machine = Machine::new(64, 0);
    let kernel = vmlinux().build();
    let loaded = machine.load(&machine.request(&kernel)).unwrap();
    assert_eq!((loaded.protocol, loaded.entry.rip), (Protocol::Linux64, LINKED + 0x40));
    check_kernel(&machine, &loaded, true);
    let page = zero_page(&loaded);
    assert_eq!(machine.bytes(page + 0x202, 4), b"HdrS");
    let command_line = u64::from(machine.u32(page + zero::COMMAND_LINE));
    assert_eq!(machine.string(command_line), "console=ttyS0");
}

#[test]
fn an_unpacked_kernel_with_its_table_is_randomized_too() {
    let machine = Machine::new(64, 0);
    let mut kernel = vmlinux().build();
    kernel.extend(relocations(false));
    let request = Request { randomness: randomness(5, 5), ..machine.request(&kernel) };
    let loaded = machine.load(&request).unwrap();
    assert_eq!(loaded.linear_offset, 5 * 2 * MIB);
    check_kernel(&machine, &loaded, false);
}

#[test]
fn the_cache_is_used() {
    let cache = Kept::default();
    let kernel = Bz::new(Format::Xz).build();
    for _ in 0..2 {
        let machine = Machine::new(64, 0);
        let request = Request { randomness: randomness(3, 3), ..machine.request(&kernel) };
        let loaded = machine.load_from(&request, Some(&cache)).unwrap();
        check_kernel(&machine, &loaded, true);
    }
    let never = |_: &[u8]| panic!("it is in the cache");
    assert!(unpack(&kernel, Some(&cache), &never).is_ok());
    assert_eq!(cache.0.lock().unwrap().len(), 1);
}

#[test]
fn a_failure_to_unpack_leaves_nothing_in_the_cache() {
    let cache = Kept::default();
    let kernel = Bz::new(Format::Xz).build();
    let fail = |_: &[u8]| Err(Error::Checksum);
    assert!(unpack(&kernel, Some(&cache), &fail).is_err());
    assert!(cache.0.lock().unwrap().is_empty());
}

/// A cache that can neither be read nor written.
#[derive(Debug)]
struct Broken;

impl KernelCache for Broken {
    fn get(&self, _: &[u8]) -> Result<Option<CachedKernel>, String> {
        Err("cannot read the cache".to_owned())
    }

    fn put(&self, _: &[u8], _: &[u8]) -> Result<(), String> {
        Err("cannot write the cache".to_owned())
    }
}

#[test]
fn a_cache_that_cannot_be_used_is_an_error() {
    let kernel = Bz::new(Format::Xz).build();
    let error = unpack(&kernel, Some(&Broken), &unpack_payload).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the cache");
}

#[test]
fn the_table_of_relocations_covers_a_zero_based_per_cpu_segment() {
    let mut elf = vmlinux();
    let physical = LINKED + 0x30_0000;
    elf.parts.push(super::images::Part {
        physical,
        linear: 0,
        bytes: 0x8100_0000_u64.to_le_bytes().to_vec(),
        memory_bytes: 0x1000,
    });
    let mut kernel = elf.build();
    let words = [0, 0, 0, (KERNEL_MAP + physical) as u32];
    kernel.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let machine = Machine::new(64, 0);
    let request = Request { randomness: randomness(2, 2), ..machine.request(&kernel) };
    let loaded = machine.load(&request).unwrap();
    assert_eq!(machine.u64(physical.wrapping_add_signed(loaded.physical_offset)), 0x8140_0000);
}

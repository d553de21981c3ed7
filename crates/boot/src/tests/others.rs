//! PVH and Multiboot.

use super::images::{Bz, Elf, Part, vmlinux};
use super::*;
use crate::unpack::Format;

/// A kernel of somebody else's with a PVH entry.
pub fn pvh(is_64: bool) -> Elf {
    let entry = 0x10_0100_u64;
    let description =
        if is_64 { entry.to_le_bytes().to_vec() } else { (entry as u32).to_le_bytes().to_vec() };
    Elf {
        is_64,
        entry: 0x10_0000,
        parts: vec![Part {
            physical: 0x10_0000,
            linear: 0x10_0000,
            bytes: (0..4000_u32).map(|index| (index % 251) as u8).collect(),
            memory_bytes: 0x3000,
        }],
        notes: vec![("Xen", 18, description)],
    }
}

fn multiboot_header(flags: u32, addresses: &[u32]) -> Vec<u8> {
    let magic = 0x1bad_b002_u32;
    let checksum = 0_u32.wrapping_sub(magic).wrapping_sub(flags);
    let words = [&[magic, flags, checksum], addresses].concat();
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An ELF kernel linked high, loaded at 1 MiB.
pub fn multiboot_elf(extra: &[u8]) -> Elf {
    let mut bytes = multiboot_header(3, &[]);
    bytes.extend_from_slice(extra);
    bytes.resize(5000, 0xf4);
    Elf {
        is_64: false,
        entry: 0xc010_0020,
        parts: vec![Part { physical: 0x10_0000, linear: 0xc010_0000, bytes, memory_bytes: 0x4000 }],
        notes: vec![],
    }
}

/// A kernel that is no ELF file: 64 bytes in front, then the header, then code.
pub fn multiboot_flat() -> Vec<u8> {
    let addresses = [0x20_0040, 0x20_0000, 0x20_1000, 0x20_3000, 0x20_0080];
    let mut file = vec![0xee; 16];
    file.extend_from_slice(&[0xcc; 64]);
    file.extend(multiboot_header(1 << 16, &addresses));
    file.resize(16 + 0x1000, 0x90);
    file
}

/// Fill memory, so that what must be cleared is seen.
fn dirty() -> Machine {
    let machine = Machine::new(64, 0);
    machine.memory.write_slice(&[0xff; 0x30_0000], GuestAddress(MIB)).unwrap();
    machine
}

fn check_protected(machine: &Machine, entry: &Entry) {
    assert_eq!(entry.mode, Mode::Protected32);
    assert_eq!((entry.cr0 & 1, entry.cr0 >> 31, entry.cr3, entry.cr4, entry.efer), (1, 0, 0, 0, 0));
    assert_eq!(entry.rflags, 2);
    let code = entry.segments[1];
    assert_eq!((code.base, code.limit, code.attributes), (0, u32::MAX, 0xc09b));
    let descriptor = entry.gdt.base + u64::from(code.selector);
    assert_eq!(machine.u64(descriptor), 0x00cf_9b00_0000_ffff);
    for segment in [0, 2, 3, 4, 5] {
        assert_eq!((entry.segments[segment].base, entry.segments[segment].attributes), (0, 0xc093));
    }
}

#[test]
fn a_pvh_kernel_gets_its_start_info() {
    for is_64 in [false, true] {
        let machine = dirty();
        let kernel = pvh(is_64).build();
        let modules = [Module { data: b"module", command_line: "its arguments" }];
        let request = Request {
            modules: &modules,
            rsdp: Some(GuestAddress(0xe_0000)),
            ..machine.request(&kernel)
        };
        let loaded = machine.load(&request).unwrap();
        assert_eq!((loaded.protocol, loaded.entry.rip), (Protocol::Pvh, 0x10_0100));
        check_protected(&machine, &loaded.entry);
        assert_eq!(machine.u8(0x10_0000 + 3999), (3999 % 251) as u8);
        assert!(machine.bytes(0x10_0000 + 4000, 0x3000 - 4000).iter().all(|&byte| byte == 0));
        assert_eq!(machine.u8(0x10_3000), 0xff);

        let info = loaded.entry.gprs[gpr::RBX];
        assert_eq!((machine.u32(info), machine.u32(info + 4)), (0x336e_c578, 1));
        assert_eq!(machine.u32(info + 12), 1);
        let module = machine.u64(info + 16);
        assert_eq!(machine.bytes(machine.u64(module), 6), b"module");
        assert_eq!(machine.u64(module + 8), 6);
        assert_eq!(machine.string(machine.u64(module + 16)), "its arguments");
        assert_eq!(machine.string(machine.u64(info + 24)), "console=ttyS0");
        assert_eq!(machine.u64(info + 32), 0xe_0000);
        let map = machine.u64(info + 40);
        assert_eq!(machine.u32(info + 48) as usize, machine.map.len());
        assert_eq!((machine.u64(map + 24), machine.u32(map + 40)), (MIB, 1));
    }
}

#[test]
fn a_multiboot_kernel_gets_its_information() {
    let machine = dirty();
    let kernel = multiboot_elf(&[]).build();
    let modules = [
        Module { data: &[1; 5000], command_line: "one 1" },
        Module { data: &[2; 10], command_line: "two" },
    ];
    let request = Request { modules: &modules, ..machine.request(&kernel) };
    let loaded = machine.load(&request).unwrap();
    assert_eq!((loaded.protocol, loaded.entry.rip), (Protocol::Multiboot, 0x10_0020));
    check_protected(&machine, &loaded.entry);
    assert_eq!(loaded.entry.gprs[gpr::RAX], 0x2bad_b002);
    assert_eq!(machine.u32(0x10_0000), 0x1bad_b002);
    assert!(machine.bytes(0x10_0000 + 5000, 0x4000 - 5000).iter().all(|&byte| byte == 0));

    let info = loaded.entry.gprs[gpr::RBX];
    let word = |offset: u64| machine.u32(info + offset);
    assert_eq!(word(0), 0b10_0100_1111);
    assert_eq!((word(4), word(8)), (640, 63 * 1024));
    assert_eq!(machine.string(u64::from(word(16))), "kernel console=ttyS0");
    assert_eq!(machine.string(u64::from(word(64))), "Bivouac");
    assert_eq!(word(20), 2);
    let mut end = 0x10_4000;
    for (index, module) in modules.iter().enumerate() {
        let entry = u64::from(word(24)) + index as u64 * 16;
        let start = u64::from(machine.u32(entry));
        assert!(start % 4096 == 0 && start >= end);
        end = u64::from(machine.u32(entry + 4));
        assert_eq!(machine.bytes(start, module.data.len()), module.data);
        assert_eq!(end - start, module.data.len() as u64);
        assert_eq!(machine.string(u64::from(machine.u32(entry + 8))), module.command_line);
    }
    let (size, map) = (u64::from(word(44)), u64::from(word(48)));
    assert_eq!(size, machine.map.len() as u64 * 24);
    assert_eq!((machine.u32(map), machine.u64(map + 4), machine.u32(map + 20)), (20, 0, 1));
    assert_eq!((machine.u64(map + 28), machine.u64(map + 36)), (MIB, 63 * MIB));
}

#[test]
fn a_multiboot_machine_has_a_bios_data_area() {
    let check = |conventional: u64, segment: u32, size: u8| {
        let mut machine = dirty();
        machine.memory.write_slice(&[0; 0x1000], GuestAddress(0)).unwrap();
        machine.map[0].size = conventional << 10;
        let start = conventional << 10;
        let extended = MapEntry { start, size: 0xa_0000 - start, kind: MapKind::Reserved };
        machine.map.extend((extended.size > 0).then_some(extended));
        let kernel = multiboot_elf(&[]).build();
        machine.load(&machine.request(&kernel)).unwrap();
        assert_eq!(machine.u32(0x413) & 0xffff, conventional as u32);
        assert_eq!(machine.u32(0x40e) & 0xffff, segment);
        assert_eq!(machine.u8(0x9_fc00), size);
    };
    check(639, 0x9fc0, 1);
    // There is no extended one where nothing is reserved.
    check(640, 0, 0);
}

#[test]
fn a_flat_multiboot_kernel_is_loaded_by_its_addresses() {
    let machine = dirty();
    let kernel = multiboot_flat();
    let loaded = machine.load(&machine.request(&kernel)).unwrap();
    assert_eq!((loaded.protocol, loaded.entry.rip), (Protocol::Multiboot, 0x20_0080));
    assert_eq!(machine.bytes(0x20_0000, 64), [0xcc; 64]);
    assert_eq!(machine.u32(0x20_0040), 0x1bad_b002);
    assert_eq!(machine.u8(0x20_0fff), 0x90);
    assert!(machine.bytes(0x20_1000, 0x2000).iter().all(|&byte| byte == 0));
    assert_eq!(machine.u8(0x20_3000), 0xff);
}

#[test]
fn multiboot_headers_that_ask_too_much_are_refused() {
    let machine = Machine::new(64, 0);
    let refuse = |flags, addresses: &[u32]| {
        let mut file = multiboot_header(flags, addresses);
        file.resize(0x1000, 0);
        let error = machine.load(&machine.request(&file)).unwrap_err();
        assert!(matches!(error, Error::Multiboot { .. } | Error::Truncated { .. }), "{error}");
    };
    refuse(8, &[]);
    refuse(0, &[]);
    refuse(1 << 16, &[0x10_0000, 0x10_0004, 0, 0, 0x10_0000]);
    refuse(1 << 16, &[0x10_0100, 0x10_0000, 0, 0, 0x10_0000]);
    refuse(1 << 16, &[0x10_0000, 0x10_0000, 0xf_0000, 0, 0x10_0000]);
    refuse(1 << 16, &[0x10_0000, 0x10_0000, 0x10_2000, 0, 0x10_0000]);
    refuse(1 << 16, &[0x10_0000, 0x10_0000, 0, 0, 0x20_0000]);
}

#[test]
fn the_protocol_is_chosen_as_documented() {
    let of = |file: &[u8]| protocol(file).unwrap();
    assert_eq!(of(&Bz::new(Format::Gzip).build()), Protocol::Linux64);
    assert_eq!(of(&vmlinux().build()), Protocol::Linux64);
    assert_eq!(of(&pvh(true).build()), Protocol::Pvh);
    assert_eq!(of(&pvh(false).build()), Protocol::Pvh);
    assert_eq!(of(&multiboot_elf(&[]).build()), Protocol::Multiboot);
    assert_eq!(of(&multiboot_flat()), Protocol::Multiboot);
    let mut both = multiboot_elf(&[]);
    both.notes = pvh(false).notes;
    assert_eq!(of(&both.build()), Protocol::Multiboot);
    let mut silent = vmlinux();
    silent.notes.clear();
    assert_eq!(of(&silent.build()), Protocol::Linux64);
    let mut xen_says = vmlinux();
    xen_says.notes = vec![("Xen", 6, b"linux\0".to_vec()), xen_says.notes[1].clone()];
    assert_eq!(of(&xen_says.build()), Protocol::Linux64);
    assert!(protocol(b"MZ").is_err());
}

use super::{Config, Error, Tables, build};
use crate::layout::{ACPI_TABLES, HIGH_MEMORY};

const CONFIG: Config =
    Config { processors: 2, com1: true, com2: true, fw_cfg: true, firmware_memory: None };

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// The table at an address.
fn at(tables: &Tables, address: u64) -> &[u8] {
    let piece = tables.pieces.iter().find(|(start, _)| start.0 == address);
    &piece.expect("a table starts there").1
}

fn long(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

fn quad(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

/// The table with a signature, found as a kernel finds it.
fn found<'a>(tables: &'a Tables, signature: &[u8; 4]) -> &'a [u8] {
    let xsdt = at(tables, quad(at(tables, tables.rsdp.0), 24));
    let entries = xsdt[36..].chunks(8).map(|entry| at(tables, quad(entry, 0)));
    entries.into_iter().find(|table| &table[..4] == signature).expect("it is in the XSDT")
}

#[test]
fn the_rsdp_is_where_it_is_searched_for() {
    let tables = build(&CONFIG).unwrap();
    assert_eq!(tables.rsdp, ACPI_TABLES);
    let rsdp = at(&tables, tables.rsdp.0);
    assert_eq!(&rsdp[..8], b"RSD PTR ");
    assert_eq!((sum(&rsdp[..20]), sum(rsdp), rsdp[15]), (0, 0, 2));
}

#[test]
fn every_table_has_its_length_and_checksum() {
    let tables = build(&CONFIG).unwrap();
    let fadt = found(&tables, b"FACP");
    let dsdt = at(&tables, quad(fadt, 140));
    for table in [found(&tables, b"APIC"), fadt, dsdt] {
        assert_eq!(long(table, 4) as usize, table.len());
        assert_eq!(sum(table), 0);
    }
    assert_eq!(&dsdt[..4], b"DSDT");
    assert_eq!(long(fadt, 40), quad(fadt, 140) as u32);
    assert_eq!(&at(&tables, long(fadt, 36).into())[..4], b"FACS");
}

#[test]
fn tables_do_not_overlap_and_stay_in_their_range() {
    let tables = build(&CONFIG).unwrap();
    for pair in tables.pieces.windows(2) {
        assert!(pair[0].0.0 + pair[0].1.len() as u64 <= pair[1].0.0);
        assert_eq!(pair[1].0.0 % 64, 0);
    }
    let (last, bytes) = tables.pieces.last().unwrap();
    assert!(last.0 + bytes.len() as u64 <= HIGH_MEMORY.0);
}

#[test]
fn the_fixed_hardware_is_where_the_platform_has_it() {
    let tables = build(&CONFIG).unwrap();
    let fadt = found(&tables, b"FACP");
    assert_eq!(long(fadt, 48), 0, "no SMI command port: ACPI is always on");
    assert_eq!((long(fadt, 56), long(fadt, 64), long(fadt, 76)), (0x600, 0x604, 0x608));
    assert_eq!((quad(fadt, 120), fadt[128]), (0xcf9, 6));
    let flags = long(fadt, 112);
    assert_eq!(flags & 1 << 20, 0, "not hardware-reduced");
    assert_ne!(flags & 1 << 10, 0, "the reset register is there");
}

#[test]
fn the_madt_lists_processors_and_overrides() {
    let tables = build(&CONFIG).unwrap();
    let mut rest = &found(&tables, b"APIC")[44..];
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (entry, more) = rest.split_at(rest[1].into());
        entries.push(entry);
        rest = more;
    }
    let expected: [&[u8]; 6] = [
        &[0, 8, 0, 0, 1, 0, 0, 0],
        &[0, 8, 1, 1, 1, 0, 0, 0],
        &[1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0],
        &[2, 10, 0, 0, 2, 0, 0, 0, 0, 0],
        &[2, 10, 0, 9, 9, 0, 0, 0, 0x0d, 0],
        &[4, 6, 0xff, 0, 0, 1],
    ];
    assert_eq!(entries, expected);
}

#[test]
fn devices_appear_as_configured() {
    let names = |config| {
        let tables = build(&config).unwrap();
        let fadt = found(&tables, b"FACP").to_vec();
        let dsdt = at(&tables, quad(&fadt, 140)).to_vec();
        [b"COM1", b"COM2", b"FWCF", b"_S5_", b"PCI0"]
            .map(|name| dsdt.windows(4).any(|at| at == name))
    };
    assert_eq!(names(CONFIG), [true; 5]);
    let bare = Config { com1: false, com2: false, fw_cfg: false, ..CONFIG };
    assert_eq!(names(bare), [false, false, false, true, true]);
}

#[test]
fn the_mcfg_names_the_configuration_space_of_one_bus() {
    let tables = build(&CONFIG).unwrap();
    let mcfg = found(&tables, b"MCFG");
    assert_eq!((mcfg.len(), sum(mcfg)), (60, 0));
    assert_eq!((quad(mcfg, 44), &mcfg[52..56]), (0xe000_0000, &[0; 4][..]));
}

#[test]
fn too_many_processors_are_refused() {
    let config = Config { processors: 20_000, ..CONFIG };
    assert!(matches!(build(&config), Err(Error::TooLarge { .. })));
}

/// Does what firmware does with the files, the memory for which is at these addresses.
fn carry_out(mut files: [(&'static str, Vec<u8>); 3], at: [u64; 2]) -> [Vec<u8>; 2] {
    let script = std::mem::take(&mut files[2].1);
    let number = |name: &[u8]| {
        let end = name.iter().position(|byte| *byte == 0).unwrap();
        files[..2].iter().position(|file| file.0.as_bytes() == &name[..end]).unwrap()
    };
    let named: Vec<_> = script
        .chunks(128)
        .map(|command| match long(command, 0) {
            2 => (number(&command[4..60]), number(&command[60..116])),
            _ => (number(&command[4..60]), 0),
        })
        .collect();
    for (command, (file, other)) in script.chunks(128).zip(named) {
        let bytes = &mut files[file].1;
        match long(command, 0) {
            1 => assert_eq!(at[file] % u64::from(long(command, 60)), 0),
            2 => {
                let (place, size) = (long(command, 116) as usize, usize::from(command[120]));
                let mut pointer = [0; 8];
                pointer[..size].copy_from_slice(&bytes[place..place + size]);
                let pointer = u64::from_le_bytes(pointer) + at[other];
                bytes[place..place + size].copy_from_slice(&pointer.to_le_bytes()[..size]);
            }
            3 => {
                let [result, start, length] = [60, 64, 68].map(|at| long(command, at) as usize);
                bytes[result] = 0u8.wrapping_sub(sum(&bytes[start..start + length]));
            }
            other => panic!("command {other}"),
        }
    }
    let [(_, tables), (_, rsdp), _] = files;
    [tables, rsdp]
}

#[test]
fn firmware_places_the_tables_where_it_likes() {
    let config = Config { firmware_memory: Some(1 << 30), ..CONFIG };
    let at = [0x7eed_3000, 0xf_5a40];
    let [tables, rsdp] = carry_out(super::linked(&config).unwrap(), at);
    let table = |address: u64| &tables[(address - at[0]) as usize..];
    assert_eq!((sum(&rsdp[..20]), sum(&rsdp)), (0, 0));
    let xsdt = table(quad(&rsdp, 24));
    let length = long(xsdt, 4) as usize;
    assert_eq!((&xsdt[..4], sum(&xsdt[..length])), (&b"XSDT"[..], 0));
    let entries: Vec<_> = xsdt[36..length].chunks(8).map(|entry| table(quad(entry, 0))).collect();
    let signatures: Vec<_> = entries.iter().map(|table| &table[..4]).collect();
    assert_eq!(signatures, [b"FACP", b"APIC"], "no configuration space by memory");
    for table in &entries {
        assert_eq!(sum(&table[..long(table, 4) as usize]), 0);
    }
    let fadt = entries[0];
    assert_eq!(&table(u64::from(long(fadt, 36)))[..4], b"FACS");
    assert_eq!(u64::from(long(fadt, 40)), quad(fadt, 140));
    assert_eq!(&table(quad(fadt, 140))[..4], b"DSDT");
}

use std::sync::Arc;

use machine::bus::{PortDevice, Size};
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::{Error, FwCfg};

fn device() -> (FwCfg, Arc<GuestMemoryMmap>) {
    let memory = Arc::new(GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap());
    (FwCfg::new(Arc::clone(&memory) as _, 1, 128 << 20), memory)
}

fn read(device: &mut FwCfg, key: u16, count: usize) -> Vec<u8> {
    device.write(0, Size::Word, key.into());
    (0..count).map(|_| device.read(1, Size::Byte) as u8).collect()
}

/// The selector and size of a file, found as a guest finds it.
fn find(device: &mut FwCfg, name: &str) -> Option<(u16, u32)> {
    let count = u32::from_be_bytes(read(device, 0x19, 4).try_into().unwrap());
    let directory = read(device, 0x19, 4 + 64 * count as usize);
    let entries = directory[4..].chunks(64);
    entries.into_iter().find_map(|entry| {
        let end = entry[8..].iter().position(|byte| *byte == 0)?;
        let size = u32::from_be_bytes(entry[..4].try_into().ok()?);
        let key = u16::from_be_bytes(entry[4..6].try_into().ok()?);
        (&entry[8..8 + end] == name.as_bytes()).then_some((key, size))
    })
}

fn dma(device: &mut FwCfg, memory: &GuestMemoryMmap, control: u32, length: u32, to: u64) -> u32 {
    let request = [control.to_be_bytes(), length.to_be_bytes()].concat();
    memory.write_slice(&request, GuestAddress(0x100)).unwrap();
    memory.write_slice(&to.to_be_bytes(), GuestAddress(0x108)).unwrap();
    device.write(4, Size::Dword, 0);
    device.write(8, Size::Dword, 0x100u32.swap_bytes());
    u32::from_be_bytes(memory.read_obj(GuestAddress(0x100)).unwrap())
}

#[test]
fn it_identifies_itself() {
    let (mut device, _) = device();
    assert_eq!(read(&mut device, 0, 5), b"QEMU\0");
    assert_eq!(read(&mut device, 1, 4), [3, 0, 0, 0]);
    let signature = [device.read(4, Size::Dword), device.read(8, Size::Dword)];
    assert_eq!(signature.map(u32::to_le_bytes).concat(), b"QEMU CFG");
}

#[test]
fn it_tells_processors_and_memory() {
    let (mut device, _) = device();
    assert_eq!(read(&mut device, 5, 2), [1, 0]);
    assert_eq!(read(&mut device, 3, 8), (128u64 << 20).to_le_bytes());
}

#[test]
fn the_memory_map_is_a_file() {
    let (mut device, _) = device();
    let (key, size) = find(&mut device, "etc/e820").unwrap();
    let map = read(&mut device, key, size as usize);
    assert_eq!(&map[..20], &[&[0; 8][..], &0x9_fc00u64.to_le_bytes(), &[1, 0, 0, 0]].concat()[..]);
    let ram: u64 = map
        .chunks(20)
        .filter(|entry| entry[16] == 1)
        .map(|entry| u64::from_le_bytes(entry[8..16].try_into().unwrap()))
        .sum();
    assert_eq!(ram, (128 << 20) - (0x10_0000 - 0x9_fc00));
}

#[test]
fn files_are_listed_by_name() {
    let (mut device, _) = device();
    device.add_file("opt/b", vec![1, 2, 3]).unwrap();
    device.add_file("a", vec![]).unwrap();
    assert_eq!(find(&mut device, "a"), Some((0x22, 0)));
    assert_eq!(find(&mut device, "opt/b"), Some((0x21, 3)));
    assert_eq!(read(&mut device, 0x21, 5), [1, 2, 3, 0, 0]);
    assert_eq!(&read(&mut device, 0x19, 14)[12..], b"a\0");
}

#[test]
fn bad_files_are_refused() {
    let (mut device, _) = device();
    let long = "x".repeat(56);
    assert_eq!(device.add_file(&long, vec![]), Err(Error::BadName(long)));
    assert_eq!(device.add_file("", vec![]), Err(Error::BadName("".into())));
    assert_eq!(device.add_file("etc/e820", vec![]), Err(Error::Twice("etc/e820".into())));
    let added = (0..100).filter(|n| device.add_file(&format!("{n}"), vec![]).is_ok()).count();
    assert_eq!(added, 63);
}

#[test]
fn dma_selects_reads_and_skips() {
    let (mut device, memory) = device();
    device.add_file("f", (0..100).collect()).unwrap();
    assert_eq!(dma(&mut device, &memory, 0x21 << 16 | 0x0a, 4, 0x1000), 0);
    assert_eq!(memory.read_obj::<[u8; 4]>(GuestAddress(0x1000)).unwrap(), [0, 1, 2, 3]);
    assert_eq!(dma(&mut device, &memory, 0x04, 90, 0), 0);
    memory.write_slice(&[0xff; 12], GuestAddress(0x1000)).unwrap();
    assert_eq!(dma(&mut device, &memory, 0x02, 8, 0x1000), 0);
    let bytes: [u8; 9] = memory.read_obj(GuestAddress(0x1000)).unwrap();
    assert_eq!(bytes, [94, 95, 96, 97, 98, 99, 0, 0, 0xff]);
}

#[test]
fn dma_that_cannot_be_done_fails() {
    let (mut device, memory) = device();
    assert_eq!(dma(&mut device, &memory, 0x02, 16, 0x3ff8), 1);
    assert_eq!(dma(&mut device, &memory, 0x02, 16, u64::MAX - 3), 1);
    assert_eq!(dma(&mut device, &memory, 0x02, u32::MAX, 0), 1);
    assert_eq!(dma(&mut device, &memory, 0x10, 1, 0x1000), 1, "items cannot be written");
    device.write(4, Size::Dword, u32::MAX);
    device.write(8, Size::Dword, u32::MAX);
}

#[test]
fn an_unknown_item_is_empty() {
    let (mut device, _) = device();
    assert_eq!(read(&mut device, 0x1234, 3), [0; 3]);
    device.write(0, Size::Word, 0x4000);
    assert_eq!(device.read(1, Size::Dword).to_le_bytes(), *b"QEMU", "bit 14 does not count");
}

proptest! {
    #[test]
    fn nothing_that_is_written_breaks_it(
        steps in prop::collection::vec(any::<(bool, u16, u8, u32)>(), 0..200),
    ) {
        let (mut device, memory) = device();
        for (write, at, size, value) in steps {
            let size = [Size::Byte, Size::Word, Size::Dword][usize::from(size % 3)];
            if write {
                device.write(at % 14, size, value & size.mask() as u32);
                let place = GuestAddress(u64::from(value) & 0x3ff0);
                memory.write_obj(value.rotate_left(7), place).unwrap();
            } else {
                device.read(at % 14, size);
            }
        }
    }
}

#[test]
fn firmware_is_told_of_memory_alone() {
    let mut device = device().0.for_firmware(5 << 30);
    let (key, size) = find(&mut device, "etc/e820").unwrap();
    assert_eq!(size, 40);
    let map = read(&mut device, key, 40);
    let quad = |at: usize| u64::from_le_bytes(map[at..at + 8].try_into().unwrap());
    assert_eq!((quad(0), quad(8), map[16]), (0, 3 << 30, 1));
    assert_eq!((quad(20), quad(28), map[36]), (1 << 32, 2 << 30, 1));
}

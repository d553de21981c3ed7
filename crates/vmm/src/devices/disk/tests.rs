//! Images against a file in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use devices::virtio::Segment;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::*;

const MEMORY_BYTES: usize = 0x1_0000;

fn memory() -> GuestMemoryMmap {
    let half = MEMORY_BYTES / 2;
    let ranges = [(GuestAddress(0), half), (GuestAddress(half as u64), half)];
    GuestMemoryMmap::from_ranges(&ranges).unwrap()
}

/// A file of so many sectors, each filled with its number.
fn file(sectors: u64) -> File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file: File = rustix::fs::memfd_create("disk", flags).unwrap().into();
    for sector in 0..sectors {
        file.write_all_at(&[sector as u8; 512], sector * 512).unwrap();
    }
    file
}

fn buffers<'a>(memory: &'a GuestMemoryMmap, parts: &[(u64, u32)]) -> Buffers<'a> {
    let segment = |&(address, length)| Segment { address, length };
    Buffers::new(memory, parts.iter().map(segment).collect())
}

/// The sectors of an image, by their first and last bytes.
fn sectors(image: &dyn Image, range: std::ops::Range<u64>) -> Vec<u8> {
    let memory = memory();
    let bytes = (range.end - range.start) as u32 * 512;
    image.read(range.start * 512, &buffers(&memory, &[(0, bytes)])).unwrap();
    let byte = |at| memory.read_obj::<u8>(GuestAddress(at)).unwrap();
    (0..range.end - range.start)
        .map(|sector| {
            assert_eq!(byte(sector * 512), byte(sector * 512 + 511));
            byte(sector * 512)
        })
        .collect()
}

fn write(image: &dyn Image, sector: u64, values: &[u8]) -> io::Result<()> {
    let memory = memory();
    let bytes: Vec<_> = values.iter().flat_map(|&value| [value; 512]).collect();
    memory.write_slice(&bytes, GuestAddress(0x7f00)).unwrap();
    let first = bytes.len() as u32 / 3;
    let parts = [(0x7f00, first), (0x7f00 + u64::from(first), bytes.len() as u32 - first)];
    image.write(sector * 512, &buffers(&memory, &parts))
}

#[test]
fn parts_of_buffers_are_what_they_say() {
    let memory = memory();
    let all = buffers(&memory, &[(0x100, 10), (0x200, 0), (0x300, 10)]);
    let check = |skip, bytes, expected: &[(u64, u32)]| {
        let part = all.part(skip, bytes);
        let parts: Vec<_> =
            part.segments().iter().map(|segment| (segment.address, segment.length)).collect();
        assert_eq!(parts, expected, "{skip} {bytes}");
    };
    check(0, 20, &[(0x100, 10), (0x300, 10)]);
    check(3, 4, &[(0x103, 4)]);
    check(8, 5, &[(0x108, 2), (0x300, 3)]);
    check(10, 100, &[(0x300, 10)]);
    check(20, 1, &[]);
}

#[test]
fn a_raw_image_is_its_file() {
    let file = file(8);
    let raw = Raw::new(file.try_clone().unwrap(), 8 * 512 + 100, false);
    assert_eq!(raw.bytes(), 8 * 512);
    write(&raw, 2, &[0xaa, 0xbb]).unwrap();
    assert_eq!(sectors(&raw, 1..5), [1, 0xaa, 0xbb, 4]);
    raw.zero(3 * 512, 512, false).unwrap();
    raw.zero(4 * 512, 512, true).unwrap();
    assert_eq!(sectors(&raw, 0..8), [0, 1, 0xaa, 0, 0, 5, 6, 7]);
    raw.flush().unwrap();
    file.set_len(512).unwrap();
    let error = raw.read(512, &buffers(&memory(), &[(0, 512)])).unwrap_err();
    assert!(error.to_string().contains("shorter"), "{error}");
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let raw = Raw::new(file(8), 8 * 512, true);
    let memory = memory();
    for (address, length) in [(MEMORY_BYTES as u64, 512), (MEMORY_BYTES as u64 - 256, 512)] {
        assert!(raw.read(0, &buffers(&memory, &[(address, length)])).is_err());
        assert!(raw.write(0, &buffers(&memory, &[(address, length)])).is_err());
        assert!(raw.write(512, &buffers(&memory, &[(address, length)])).is_err());
        assert_eq!(raw.read_at_hand(0, &buffers(&memory, &[(address, length)])), 0);
    }
    assert_eq!(sectors(&raw, 0..3), [0, 1, 2]);
}

#[test]
fn a_disk_that_was_taken_for_raw_does_not_become_another() {
    let memory = memory();
    memory.write_slice(b"QFI\xfb", GuestAddress(0)).unwrap();
    let magic = [(0, 1), (1, 2), (3, 509), (512, 512)];
    let guessed = Raw::new(file(8), 8 * 512, true);
    let error = guessed.write(0, &buffers(&memory, &magic)).unwrap_err();
    assert!(error.to_string().contains("format=raw"), "{error}");
    guessed.write(512, &buffers(&memory, &magic)).unwrap();
    write(&guessed, 0, &[9, 8, 7]).unwrap();
    assert_eq!(sectors(&guessed, 0..4), [9, 8, 7, 3]);
    let known = Raw::new(file(8), 8 * 512, false);
    known.write(0, &buffers(&memory, &magic)).unwrap();
}

#[test]
fn a_snapshot_leaves_its_image_alone() {
    let below = file(20);
    let raw = Raw::new(below.try_clone().unwrap(), 20 * 512, false);
    let overlay = Overlay::new(Box::new(raw), file(0)).unwrap();
    write(&overlay, 3, &[0xaa, 0xbb]).unwrap();
    write(&overlay, 7, &[0xcc]).unwrap();
    overlay.zero(9 * 512, 2 * 512, true).unwrap();
    let expected = [0, 1, 2, 0xaa, 0xbb, 5, 6, 0xcc, 8, 0, 0, 11];
    assert_eq!(sectors(&overlay, 0..12), expected);
    assert_eq!(sectors(&overlay, 4..6), [0xbb, 5]);
    assert_eq!(overlay.bytes(), 20 * 512);
    overlay.flush().unwrap();
    let mut all = vec![0; 20 * 512];
    below.read_exact_at(&mut all, 0).unwrap();
    assert!(all.chunks(512).enumerate().all(|(sector, bytes)| bytes == [sector as u8; 512]));
}

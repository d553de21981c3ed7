//! Files that are taken for images of pods: any bytes, and descriptions behind a header and checksums that are right.

#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;

use checkpoint::Image;
use libfuzzer_sys::fuzz_target;

/// See crates/checkpoint/src/image/mod.rs.
const PIECES_OFFSET: u64 = 4096;

fuzz_target!(|bytes: &[u8]| {
    check(&[(0, bytes)]);
    let mut numbers = PIECES_OFFSET.to_le_bytes().to_vec();
    numbers.extend((bytes.len() as u64).to_le_bytes());
    numbers.extend(crc32fast::hash(bytes).to_le_bytes());
    numbers.resize(32, 0);
    let mut header = b"BIVPOD\n\x01\0\0\0\0".to_vec();
    header.extend(crc32fast::hash(&numbers).to_le_bytes());
    header.extend(numbers);
    check(&[(0, &header), (PIECES_OFFSET, bytes)]);
});

fn check(parts: &[(u64, &[u8])]) {
    let file = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(file.expect("there is memory"));
    for (offset, bytes) in parts {
        file.write_all_at(bytes, *offset).expect("there is memory");
    }
    if let Ok(image) = Image::open(file) {
        for extent in image.extents() {
            let _ = image.read(extent);
        }
    }
}

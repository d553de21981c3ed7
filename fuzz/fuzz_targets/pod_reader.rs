//! What the process that reads an image may say: any bytes, and descriptions and pages behind heads that are right.

#![no_main]

use std::fs::File;
use std::io::Write;

use checkpoint::reader::{Ends, Reader};
use checkpoint::{Image, ImageName, Parents};
use libfuzzer_sys::fuzz_target;

/// See crates/checkpoint/src/image/reader/mod.rs.
const DESCRIPTION: u8 = 2;
const PAGES: u8 = 3;

/// Bytes that a pipe of this program takes before anybody reads them.
const MAX_BYTES: usize = 60_000;

fuzz_target!(|bytes: &[u8]| {
    let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
    check(bytes);
    let (description, pages) = bytes.split_at(bytes.len() / 4 * 3);
    let said = [(DESCRIPTION, description), (PAGES, pages)].map(|(what, bytes)| {
        [&[what][..], &(bytes.len() as u32).to_le_bytes(), bytes].concat()
    });
    check(&said.concat());
});

/// Who gives any file for a parent.
struct Any;

impl Parents for Any {
    fn find(&mut self, _: &ImageName) -> Option<File> {
        Some(memory())
    }
}

fn memory() -> File {
    let file = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC);
    file.expect("there is memory").into()
}

fn check(says: &[u8]) {
    let (reader, Ends { requests, answers }) = Reader::new().expect("there are descriptors");
    // It is all there, and then the end.
    File::from(answers).write_all(says).expect("there is room");
    if let Ok(image) = Image::open_by(reader, &memory(), &mut Any) {
        for pages in image.pages() {
            let _ = pages;
        }
    }
    drop(requests);
}

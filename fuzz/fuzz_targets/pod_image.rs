//! Files that are taken for images of pods: any bytes, and descriptions behind a header and checksums that are right.
//! One that names a parent by [`ANY`] has one.

#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use checkpoint::state::{Owner, State};
use checkpoint::{Compression, Image, ImageName, Pages, Parents, Writer};
use libfuzzer_sys::fuzz_target;

/// See crates/checkpoint/src/image/mod.rs.
const PIECES_OFFSET: u64 = 4096;

/// What stands for the parent's name, of whose bytes the fuzzer knows nothing.
const ANY: [u8; 32] = [0xaa; 32];

fuzz_target!(|bytes: &[u8]| {
    check(&[(0, bytes)]);
    let mut description = bytes.to_vec();
    let place = bytes.windows(ANY.len()).position(|window| window == ANY);
    if let Some(place) = place {
        description[place..place + ANY.len()].copy_from_slice(&parent().1);
    }
    let mut numbers = PIECES_OFFSET.to_le_bytes().to_vec();
    numbers.extend((description.len() as u64).to_le_bytes());
    numbers.extend(crc32fast::hash(&description).to_le_bytes());
    numbers.extend(&blake3::hash(&description).as_bytes()[..12]);
    let mut header = b"BIVPOD\n\x02\0\0\0\0".to_vec();
    header.extend(crc32fast::hash(&numbers).to_le_bytes());
    header.extend(numbers);
    check(&[(0, &header), (PIECES_OFFSET, &description)]);
});

fn memory() -> File {
    let file = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC);
    file.expect("there is memory").into()
}

/// An image with some pages, and the bytes of its name.
fn parent() -> &'static (File, [u8; 32]) {
    static PARENT: OnceLock<(File, [u8; 32])> = OnceLock::new();
    PARENT.get_or_init(|| {
        let mut writer = Writer::new(memory(), Compression::Fast);
        for page in [16, 18, 40] {
            let bytes = vec![page as u8; 2 * 4096];
            writer.put(Owner::Process(2), page * 4096, &bytes).expect("there is memory");
        }
        let file = writer.finish(State::default()).expect("there is memory");
        let mut header = [0; 48];
        file.read_exact_at(&mut header, 0).expect("it has a header");
        (file, *blake3::hash(&header).as_bytes())
    })
}

/// Who has one parent, whatever it is called.
struct One;

impl Parents for One {
    fn find(&mut self, _: &ImageName) -> Option<File> {
        parent().0.try_clone().ok()
    }
}

fn check(parts: &[(u64, &[u8])]) {
    let file = memory();
    for (offset, bytes) in parts {
        file.write_all_at(bytes, *offset).expect("there is memory");
    }
    if let Ok(image) = Image::open_with(file, &mut One) {
        for pages in image.pages() {
            let _ = pages;
        }
    }
}

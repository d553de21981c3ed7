//! A layer of a container image becomes a file system: what a registry or an archive sends, compressed or not. What is
//! not refused is a file system that the kernel would mount, and says nothing to overlayfs but what a layer may remove.

#![no_main]

#[path = "../../crates/erofs/tests/trees/reader.rs"]
mod reader;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use fuzz::tape::Part;
use libfuzzer_sys::{arbitrary, fuzz_target};
use oci::{compression, layer};
use rustix::fs::{MemfdFlags, memfd_create};

/// What paths are made of.
const WORDS: [&str; 8] = ["x", "y", "..", "", ".wh.x", ".wh..wh..opq", ".wh.", "tmp"];

/// An entry, and an attribute of it.
#[derive(Debug, arbitrary::Arbitrary)]
struct Entry {
    attribute: Option<(u8, Vec<u8>)>,
    part: Part,
}

/// What comes.
#[derive(Debug, arbitrary::Arbitrary)]
enum Stream {
    Archive(Vec<Entry>),
    Bytes(Vec<u8>),
}

/// Attributes that mean something to somebody.
const ATTRIBUTES: [&str; 6] = [
    "user.x",
    "security.capability",
    "trusted.overlay.opaque",
    "trusted.overlay.redirect",
    "user.overlay.redirect",
    "",
];

const BLOCK_BYTES: usize = 512;

/// An extended header (pax) that says one thing.
fn put_attribute(name: u8, value: &[u8], stream: &mut Vec<u8>) {
    let name = ATTRIBUTES[usize::from(name) % ATTRIBUTES.len()];
    let record = [format!(" SCHILY.xattr.{name}=").as_bytes(), value, b"\n"].concat();
    let digits = |count: usize| count.to_string().len();
    let bytes = record.len() + digits(record.len() + digits(record.len()));
    let record = [bytes.to_string().as_bytes(), &record].concat();
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_size(record.len() as u64);
    header.set_cksum();
    stream.extend(header.as_bytes());
    stream.extend(&record);
    stream.resize(stream.len().next_multiple_of(BLOCK_BYTES), 0);
}

impl Stream {
    fn bytes(self) -> Vec<u8> {
        let entries = match self {
            Stream::Archive(entries) => entries,
            Stream::Bytes(bytes) => return bytes,
        };
        let mut stream = Vec::new();
        for Entry { attribute, part } in entries {
            attribute.iter().for_each(|(name, value)| put_attribute(*name, value, &mut stream));
            part.put(WORDS, &mut stream);
        }
        stream
    }
}

/// The file system of a layer, if it is not refused.
fn converted(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut file = File::from(memfd_create("layer", MemfdFlags::CLOEXEC).expect("some memory"));
    layer::convert(compression::unpack(bytes).ok()?, &file).ok()?;
    file.seek(SeekFrom::Start(0)).expect("it is a file");
    let mut read = Vec::new();
    file.read_to_end(&mut read).expect("it is a file");
    Some(read)
}

fuzz_target!(|stream: Stream| {
    let bytes = stream.bytes();
    let Some(converted_once) = converted(&bytes) else { return };
    for (path, node) in reader::read(&converted_once) {
        for (name, value) in &node.attributes {
            let is_opaque = name == b"trusted.overlay.opaque" && value == b"y";
            let is_harmless = name.starts_with(b"user.") || name == b"security.capability";
            assert!(is_opaque || is_harmless, "{path:?}: {name:?}");
        }
        let names = path.split(|byte| *byte == b'/').skip(1);
        assert!(names.into_iter().all(|name| !name.starts_with(b".wh.")), "{path:?}");
    }
    assert!(converted(&bytes) == Some(converted_once), "the same layer is another file system");
});

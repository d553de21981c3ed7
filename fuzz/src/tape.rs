//! Archives (tar) of entries with any names, links and headers.

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use tar::{EntryType, Header};

/// One header with contents.
#[derive(Debug, Arbitrary)]
pub struct Part {
    kind: u8,
    /// Words of a list, with slashes between them.
    path: Vec<u8>,
    link: Vec<u8>,
    /// What is written over the header, its sum not counted.
    scratches: Vec<(u16, u8)>,
    data: Vec<u8>,
}

const BLOCK_BYTES: usize = 512;

fn path_of(words: &[u8], known: [&str; 8]) -> String {
    let words: Vec<_> = words.iter().take(8).map(|&word| known[usize::from(word) % 8]).collect();
    words.join("/")
}

impl Part {
    /// Writes it behind a stream; paths are made of these words.
    pub fn put(&self, words: [&str; 8], stream: &mut Vec<u8>) {
        let kinds = b"012345678gxLKS";
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::new(kinds[usize::from(self.kind) % kinds.len()]));
        header.set_mode(0o4755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(self.data.len() as u64);
        let old = header.as_old_mut();
        for (field, path) in [(&mut old.name, &self.path), (&mut old.linkname, &self.link)] {
            let text = path_of(path, words);
            let bytes = text.len().min(field.len());
            field[..bytes].copy_from_slice(&text.as_bytes()[..bytes]);
        }
        let bytes = header.as_mut_bytes();
        for &(at, value) in &self.scratches {
            bytes[usize::from(at) % BLOCK_BYTES] = value;
        }
        header.set_cksum();
        stream.extend(header.as_bytes());
        stream.extend(&self.data);
        stream.resize(stream.len().next_multiple_of(BLOCK_BYTES), 0);
    }
}

//! What a guest sends to `biv cp`: a stream of tar with any names, links and headers, unpacked as a stranger's
//! beside a file that is none of its business.

#![no_main]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use archive::{Destination, Owner, Rules, unpack};
use libfuzzer_sys::{arbitrary, fuzz_target};
use tar::{EntryType, Header};

/// One header with contents.
#[derive(Debug, arbitrary::Arbitrary)]
struct Part {
    kind: u8,
    /// Words of [`WORDS`], with slashes between them.
    path: Vec<u8>,
    link: Vec<u8>,
    /// What is written over the header, its sum not counted.
    scratches: Vec<(u16, u8)>,
    data: Vec<u8>,
}

/// What paths are made of.
const WORDS: [&str; 8] = ["x", "y", "..", "", ".", "planted", "outside", "secret"];

const BLOCK_BYTES: usize = 512;

static WORK: LazyLock<PathBuf> = LazyLock::new(|| {
    let work = std::env::temp_dir().join(format!("biv-fuzz-archive-{}", std::process::id()));
    fs::create_dir_all(work.join("outside")).expect("there is room");
    fs::write(work.join("outside/secret"), "secret").expect("there is room");
    work
});

fn path_of(words: &[u8]) -> String {
    let words: Vec<_> = words.iter().take(8).map(|&word| WORDS[usize::from(word) % 8]).collect();
    words.join("/")
}

impl Part {
    fn put(&self, stream: &mut Vec<u8>) {
        let kinds = b"012345678gxLKS";
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::new(kinds[usize::from(self.kind) % kinds.len()]));
        header.set_mode(0o4755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(self.data.len() as u64);
        let old = header.as_old_mut();
        for (field, words) in [(&mut old.name, &self.path), (&mut old.linkname, &self.link)] {
            let text = path_of(words);
            field[..text.len()].copy_from_slice(text.as_bytes());
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

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).expect("it is there").count()
}

fuzz_target!(|parts: Vec<Part>| {
    let work = &*WORK;
    let place = work.join("destination");
    fs::create_dir_all(place.join("x")).expect("there is room");
    symlink("../../outside", place.join("x/planted")).expect("there is room");
    let mut stream = Vec::new();
    parts.iter().for_each(|part| part.put(&mut stream));
    for name in [Some("x".into()), None] {
        let destination = Destination::Copy(place.clone(), name);
        let _ = unpack(&stream[..], &destination, &Rules::of_a_stranger(Owner::Ours));
    }
    let secret = work.join("outside/secret");
    assert_eq!(fs::read(&secret).expect("it is there"), b"secret");
    assert_eq!(fs::metadata(&secret).expect("it is there").nlink(), 1);
    assert_eq!((count(work), count(&work.join("outside"))), (2, 1));
    // A superuser can remove what has any permissions; others try again with them.
    if fs::remove_dir_all(&place).is_err() {
        let _ = std::process::Command::new("chmod").arg("-R").arg("u+rwx").arg(&place).status();
        fs::remove_dir_all(&place).expect("it is ours");
    }
});

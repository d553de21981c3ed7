//! What a guest sends to `biv cp`: a stream of tar with any names, links and headers, unpacked as a stranger's
//! beside a file that is none of its business.

#![no_main]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use archive::{Destination, Owner, Rules, unpack};
use fuzz::tape::Part;
use libfuzzer_sys::fuzz_target;

/// What paths are made of.
const WORDS: [&str; 8] = ["x", "y", "..", "", ".", "planted", "outside", "secret"];

static WORK: LazyLock<PathBuf> = LazyLock::new(|| {
    let work = std::env::temp_dir().join(format!("biv-fuzz-archive-{}", std::process::id()));
    fs::create_dir_all(work.join("outside")).expect("there is room");
    fs::write(work.join("outside/secret"), "secret").expect("there is room");
    work
});

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).expect("it is there").count()
}

fuzz_target!(|parts: Vec<Part>| {
    let work = &*WORK;
    let place = work.join("destination");
    fs::create_dir_all(place.join("x")).expect("there is room");
    symlink("../../outside", place.join("x/planted")).expect("there is room");
    let mut stream = Vec::new();
    parts.iter().for_each(|part| part.put(WORDS, &mut stream));
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

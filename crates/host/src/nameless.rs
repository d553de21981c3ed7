//! Files without a name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

/// A file that only its owner may read, among temporary files: it goes away with its last descriptor. `purpose` is part
/// of the name that it has for a moment on file systems that know no such files.
///
/// # Errors
///
/// The host's.
pub fn file(purpose: &str) -> io::Result<File> {
    let directory = std::env::temp_dir();
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let flags = OFlags::TMPFILE.bits().cast_signed();
    if let Ok(file) = options.clone().custom_flags(flags).open(&directory) {
        return Ok(file);
    }
    let path = directory.join(format!("biv-{purpose}-{}", std::process::id()));
    let file = options.create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

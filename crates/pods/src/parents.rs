//! The parents of an image: files that the command line names, and those that lie beside it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use checkpoint::{ImageName, Parents};
use rustix::fs::{FileType, Mode, OFlags, fstat};

use crate::limits::LOOKED_AT_MAX;

/// Where they are looked for.
pub(crate) struct Places<'a> {
    /// Files that somebody has named.
    named: &'a [PathBuf],
    /// Where the image is.
    directory: PathBuf,
}

impl<'a> Places<'a> {
    /// Those of an image.
    pub fn of(image: &Path, named: &'a [PathBuf]) -> Self {
        let directory = image.parent().filter(|directory| !directory.as_os_str().is_empty());
        Self { named, directory: directory.unwrap_or(Path::new(".")).to_owned() }
    }
}

impl Parents for Places<'_> {
    fn find(&mut self, name: &ImageName) -> Option<File> {
        let has_it = |path: PathBuf| {
            let file = open(&path).ok()?;
            (ImageName::of(&file).ok()? == *name).then_some(file)
        };
        let named = self.named.iter().cloned().find_map(has_it);
        named.or_else(|| {
            let entries = std::fs::read_dir(&self.directory).ok()?.take(LOOKED_AT_MAX).flatten();
            let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
            files.map(|entry| entry.path()).find_map(has_it)
        })
    }
}

/// A regular file, opened without waiting for anybody.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(io::Error::other("it is no file")),
    }
}

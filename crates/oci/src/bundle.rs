//! A directory or an archive with images: files by their paths.
//!
//! An archive is read once for a list of its members, and then wherever something is. One that is compressed, or comes
//! through a pipe, is unpacked to a file without a name first.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tar::EntryType;

use crate::compression::{self, Compression};
use crate::entries::Entries;
use crate::limits::{MAX_LAYER_BYTES, MAX_LINKS, MAX_MEMBERS};
use crate::store::Adding;
use crate::{Error, Source};

/// See above.
pub enum Bundle {
    /// Below a directory.
    Directory(PathBuf),
    /// In an archive.
    Archive(Archive),
}

/// An archive, with what is where in it.
pub struct Archive {
    path: PathBuf,
    file: File,
    members: HashMap<String, Member>,
}

/// Something in an archive.
enum Member {
    /// From this byte on, so many.
    File(u64, u64),
    /// What is at that path.
    Link(String),
}

/// What is in a file, and how long it is.
pub type Contents<'a> = (Box<dyn Read + 'a>, u64);

/// A path as it is in the list: from the top, without what means nothing.
fn normal(path: &[u8], above: &str) -> String {
    let path = String::from_utf8_lossy(path);
    let base = if path.starts_with('/') { "" } else { above };
    let mut names: Vec<&str> = Vec::new();
    for name in base.split('/').chain(path.split('/')) {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

impl Bundle {
    /// The directory or archive that a source names; what has to be unpacked is, on the store's file system.
    ///
    /// # Errors
    ///
    /// [`Error::Read`]; [`Error::Store`].
    pub fn open(source: &Source, adding: &Adding<'_>) -> Result<Option<Self>, Error> {
        Ok(match source {
            Source::Layout(path, _) => Some(Self::Directory(path.clone())),
            Source::LayoutArchive(path, _) | Source::DockerArchive(path, _) => {
                let file = File::open(path).map_err(Error::read(path))?;
                Some(Self::archive(path, file, adding)?)
            }
            Source::Registry(_) => None,
        })
    }

    /// An archive, wherever it comes from; `path` is what it is called.
    ///
    /// # Errors
    ///
    /// [`Error::Read`]; [`Error::Store`].
    pub fn archive(path: &Path, mut file: File, adding: &Adding<'_>) -> Result<Self, Error> {
        let failed = |error| Error::Read { path: path.to_owned(), error };
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        let mut start = [0; 4];
        let is_plain = metadata.is_file()
            && file.read_at(&mut start, 0).is_ok()
            && Compression::of(&start) == Compression::None;
        if !is_plain {
            let mut draft = adding.draft()?;
            let unpacked = compression::unpack(file).map_err(failed)?;
            let mut unpacked = unpacked.take(2 * MAX_LAYER_BYTES);
            io::copy(&mut unpacked, &mut draft).map_err(failed)?;
            file = draft.file().try_clone().map_err(failed)?;
        }
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let members = list(&file).map_err(|error| {
            failed(io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
        })?;
        Ok(Self::Archive(Archive { path: path.to_owned(), file, members }))
    }

    /// What it is called.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Archive(Archive { path, .. }) => path,
        }
    }

    /// A file of it, with its length, if it is there.
    ///
    /// # Errors
    ///
    /// [`Error::Read`].
    pub fn file(&self, name: &str) -> Result<Option<Contents<'_>>, Error> {
        match self {
            Self::Directory(directory) => {
                let path = directory.join(normal(name.as_bytes(), ""));
                let Some((file, bytes)) = regular(&path).map_err(Error::read(&path))? else {
                    return Ok(None);
                };
                Ok(Some((Box::new(file), bytes)))
            }
            Self::Archive(archive) => {
                let Some((at, bytes)) = archive.find(name) else { return Ok(None) };
                Ok(Some((Box::new(Part { file: &archive.file, at, left: bytes }), bytes)))
            }
        }
    }

    /// A short file of it, if it is there.
    ///
    /// # Errors
    ///
    /// [`Error::Read`]; [`Error::Size`].
    pub fn text(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let Some((mut file, bytes)) = self.file(name)? else { return Ok(None) };
        if bytes > limit {
            let (found, wanted) = (format!("{bytes} bytes"), format!("{limit} at most"));
            return Err(Error::Size { what: name.to_owned(), found, wanted });
        }
        let mut text = Vec::new();
        file.by_ref().take(limit).read_to_end(&mut text).map_err(Error::read(self.path()))?;
        Ok(Some(text))
    }
}

/// A regular file, if that is what is there.
fn regular(path: &Path) -> io::Result<Option<(File, u64)>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok(Some((file, metadata.len()))),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

fn list(file: &File) -> Result<HashMap<String, Member>, crate::entries::Error> {
    let mut entries = Entries::new(Seeking(file));
    let mut members = HashMap::new();
    while let Some(entry) = entries.next_entry()? {
        let path = normal(&entry.path, "");
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let member = match entry.kind {
            EntryType::Regular | EntryType::Continuous => {
                Member::File(entries.position(), entry.bytes)
            }
            EntryType::Symlink => Member::Link(normal(&entry.link, above)),
            EntryType::Link => Member::Link(normal(&entry.link, "")),
            _ => continue,
        };
        members.insert(path, member);
        if members.len() > MAX_MEMBERS {
            return Err(crate::entries::Error::Unknown("too many members"));
        }
    }
    Ok(members)
}

impl Archive {
    fn find(&self, name: &str) -> Option<(u64, u64)> {
        let mut name = normal(name.as_bytes(), "");
        for _ in 0..MAX_LINKS {
            match self.members.get(&name)? {
                Member::File(at, bytes) => return Some((*at, *bytes)),
                Member::Link(target) => name.clone_from(target),
            }
        }
        None
    }
}

/// A file that is read from its beginning on.
struct Seeking<'a>(&'a File);

impl Read for Seeking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut file = self.0;
        file.read(buffer)
    }
}

/// A part of a file.
struct Part<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = (buffer.len() as u64).min(self.left) as usize;
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_the_archive() {
        let check = |path: &str, above: &str, expected: &str| {
            assert_eq!(normal(path.as_bytes(), above), expected);
        };
        check("./a//b/./c", "", "a/b/c");
        check("/a", "x", "a");
        check("../../../etc/shadow", "x/y", "etc/shadow");
        check("../id/layer.tar", "other", "id/layer.tar");
    }
}

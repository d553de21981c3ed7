//! Packs a directory: `--root DIR`.
//!
//! It keeps types, permissions, times, symbolic and hard links, devices, and names of any bytes.
//! Like `cp -x`, it stays on DIR's file system, and packs a mount point below (`/proc`, say) as an
//! empty directory. Files of the user who packs belong to root in the guest, because an ordinary
//! user who has unpacked a file system owns all of it. Files of an image belong to the owner in
//! their attributes ([`files::owner`]).

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use files::owner::Owner;

use super::cpio::{self, Archive, mode};

/// What could not be packed, and why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the tree.
    #[error("cannot pack {path}: {error}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// `--root` is no directory.
    #[error("--root {path} is not a directory", path = .0.display())]
    NotDirectory(PathBuf),
}

/// Adds all that is in `root` to `archive`, in the order of names.
pub fn pack<W: Write>(archive: &mut Archive<W>, root: &Path, owners: Owners) -> Result<(), Error> {
    let at = |error| Error::File { path: root.to_owned(), error };
    let metadata = fs::metadata(root).map_err(at)?;
    if !metadata.is_dir() {
        return Err(Error::NotDirectory(root.to_owned()));
    }
    let mut packer = Packer { archive, owners, device: metadata.dev(), inodes: HashMap::new() };
    packer.archive.add(b".", owners.translate(root, &metadata), &[]).map_err(at)?;
    // Directories that are still to be read: deepest last, so that the order is that of `find`.
    let mut directories = vec![(root.to_owned(), Vec::new())];
    while let Some((path, name)) = directories.pop() {
        let mut below = Vec::new();
        let at = |error| Error::File { path: path.clone(), error };
        let mut entries =
            fs::read_dir(&path).map_err(at)?.collect::<Result<Vec<_>, _>>().map_err(at)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let mut name = name.clone();
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend(entry.file_name().into_vec());
            match packer.add(&path, &name) {
                Ok(true) => below.push((path, name)),
                Ok(false) => {}
                Err(error) => return Err(Error::File { path, error }),
            }
        }
        directories.extend(below.into_iter().rev());
    }
    Ok(())
}

/// To whom the files in the archive belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// To whom those of the directory do.
    OfFiles,
    /// To whom their attributes say.
    Recorded,
}

impl Owners {
    fn translate(self, path: &Path, found: &fs::Metadata) -> cpio::Metadata {
        let metadata = translate(found);
        let owner = (self == Owners::Recorded).then(|| Owner::recorded(path)).flatten();
        match owner {
            Some(owner) => cpio::Metadata {
                mode: metadata.mode & mode::TYPE | owner.mode,
                uid: owner.user,
                gid: owner.group,
                ..metadata
            },
            None => metadata,
        }
    }
}

struct Packer<'a, W> {
    archive: &'a mut Archive<W>,
    owners: Owners,
    device: u64,
    /// Numbers of files with several names, by device and inode number on the host.
    inodes: HashMap<(u64, u64), u32>,
}

impl<W: Write> Packer<'_, W> {
    /// Adds one entry; says whether it is a directory whose contents are to follow.
    fn add(&mut self, path: &Path, name: &[u8]) -> io::Result<bool> {
        let found = fs::symlink_metadata(path)?;
        let mut metadata = self.owners.translate(path, &found);
        match metadata.mode & mode::TYPE {
            mode::DIRECTORY => {
                self.archive.add(name, metadata, &[])?;
                Ok(found.dev() == self.device)
            }
            mode::LINK => {
                let target = fs::read_link(path)?;
                self.archive.add(name, metadata, target.as_os_str().as_bytes())?;
                Ok(false)
            }
            mode::FILE => {
                let mut length = u32::try_from(found.len()).map_err(|_| cpio::too_large())?;
                if found.nlink() > 1 {
                    metadata.links = u32::try_from(found.nlink()).unwrap_or(u32::MAX);
                    // The first name carries the contents.
                    match self.inodes.get(&(found.dev(), found.ino())) {
                        Some(&inode) => (metadata.inode, length) = (inode, 0),
                        None => {
                            metadata.inode = self.archive.unused_inode();
                            self.inodes.insert((found.dev(), found.ino()), metadata.inode);
                        }
                    }
                }
                self.archive.add_from(name, metadata, length, File::open(path)?)?;
                Ok(false)
            }
            _ => {
                self.archive.add(name, metadata, &[])?;
                Ok(false)
            }
        }
    }
}

fn translate(found: &fs::Metadata) -> cpio::Metadata {
    let own_user = rustix::process::geteuid().as_raw();
    let own_group = rustix::process::getegid().as_raw();
    cpio::Metadata {
        mode: found.mode(),
        uid: if found.uid() == own_user { 0 } else { found.uid() },
        gid: if found.gid() == own_group { 0 } else { found.gid() },
        mtime: u32::try_from(found.mtime().max(0)).unwrap_or(u32::MAX),
        inode: 0,
        links: 1,
        device: (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev())),
    }
}

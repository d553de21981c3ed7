//! From what a pod has written to an archive.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use archive::names;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fgetxattr, flistxattr, fstat, openat, readlinkat,
    statat,
};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::mounts::{Kept, below_root, written};
use super::{OPAQUE, WHITEOUT};
use crate::error::{Doing, Error};
use crate::layers::{Layers, Links};

/// What overlayfs notes for itself.
const OF_OVERLAYS: &[u8] = b"user.overlay.";
/// That nothing of the directory below is seen.
const IS_OPAQUE: &str = "user.overlay.opaque";
/// The longest extended attribute (`XATTR_SIZE_MAX`), and the longest list of their names.
const ATTRIBUTE_MAX_BYTES: usize = 64 << 10;

/// Packs what a pod has written; `layers` is the directory of its layers.
pub fn pack(layers: &OwnedFd, archive: impl Write) -> Result<(), Error> {
    let table = fs::read("/proc/1/mountinfo").doing("cannot read what is mounted in the pod")?;
    let laid = Layers::read_links(layers).doing("cannot read the links of the host's")?;
    let mut packing = Packing { builder: Builder::new(archive), links: HashMap::new(), laid };
    for mount in written(&table) {
        let what = || format!("cannot open {}", mount.place.display());
        let directory = match mount.kept {
            Kept::Layer(name) => open(layers, &Path::new(&name).join("upper")),
            Kept::Memory => open(CWD, &mount.place),
        };
        let directory = directory.doing(what())?;
        let device = fstat(&directory).doing(what())?.st_dev;
        packing.add_directory(&directory, below_root(&mount.place), device)?;
    }
    let done = packing.builder.into_inner().and_then(|mut archive| archive.flush());
    done.doing("cannot end the archive")
}

fn open(at: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

struct Packing<W: Write> {
    builder: Builder<W>,
    /// Files that have several names, by device and number, with the one under which each was packed.
    links: HashMap<(u64, u64), PathBuf>,
    /// What is not the pod's.
    laid: Links,
}

impl<W: Write> Packing<W> {
    /// Adds a directory that is open, and what is in it.
    fn add_directory(
        &mut self,
        directory: &OwnedFd,
        path: &Path,
        device: u64,
    ) -> Result<(), Error> {
        let what = || format!("cannot read {}", path.display());
        let status = fstat(directory).doing(what())?;
        // The root itself is whoever's made it.
        if !path.as_os_str().is_empty() {
            let extensions = extensions(directory, &status).doing(what())?;
            self.append(header(&status, EntryType::Directory, 0), path, extensions, &[][..])?;
        }
        if fgetxattr(directory, IS_OPAQUE, &mut [0; 1][..]).is_ok() {
            self.mark(&path.join(OsStr::from_bytes(OPAQUE)))?;
        }
        for name in names(directory).doing(what())? {
            self.add(directory, &name, &path.join(&name), device)?;
        }
        Ok(())
    }

    /// Adds what has a name in a directory. What is mounted there is not of it.
    fn add(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        path: &Path,
        device: u64,
    ) -> Result<(), Error> {
        let what = || format!("cannot read {}", path.display());
        let status = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).doing(what())?;
        if status.st_dev != device {
            return Ok(());
        }
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => {
                self.add_directory(&open(parent, Path::new(name)).doing(what())?, path, device)
            }
            FileType::RegularFile => self.add_file(parent, name, path),
            FileType::Symlink => {
                let target = readlinkat(parent, name, Vec::new()).doing(what())?.into_bytes();
                let mut header = header(&status, EntryType::Symlink, 0);
                let target = PathBuf::from(OsString::from_vec(target));
                // Where the pod goes, it has the links of the host there.
                if self.laid.get(path) == Some(&target) {
                    return Ok(());
                }
                self.extend(&[time(&status)]).doing(what())?;
                self.builder.append_link(&mut header, path, target).doing(what())
            }
            FileType::Fifo => {
                let header = header(&status, EntryType::Fifo, 0);
                self.append(header, path, vec![time(&status)], &[][..])
            }
            FileType::CharacterDevice if status.st_rdev == 0 => {
                let marker = [WHITEOUT, name.as_bytes()].concat();
                self.mark(&path.with_file_name(OsStr::from_bytes(&marker)))
            }
            // Devices are the host's, and a socket is nothing without who listens.
            _ => Ok(()),
        }
    }

    fn add_file(&mut self, parent: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), Error> {
        let what = || format!("cannot read {}", path.display());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(parent, name, flags, Mode::empty()).doing(what())?);
        let status = fstat(&file).doing(what())?;
        if status.st_nlink > 1 {
            let number = (status.st_dev, status.st_ino);
            if let Some(first) = self.links.get(&number) {
                let mut header = header(&status, EntryType::Link, 0);
                return self.builder.append_link(&mut header, path, first).doing(what());
            }
            self.links.insert(number, path.to_owned());
        }
        let size = u64::try_from(status.st_size).unwrap_or(0);
        let header = header(&status, EntryType::Regular, size);
        let extensions = extensions(&file, &status).doing(what())?;
        // Nobody changes it: whoever could does not run.
        self.append(header, path, extensions, file.take(size))
    }

    /// An empty file that says something of its directory.
    fn mark(&mut self, path: &Path) -> Result<(), Error> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        self.append(header, path, Vec::new(), &[][..])
    }

    fn append(
        &mut self,
        mut header: Header,
        path: &Path,
        extensions: Vec<(String, Vec<u8>)>,
        data: impl Read,
    ) -> Result<(), Error> {
        let appended = self.extend(&extensions);
        appended
            .and_then(|()| self.builder.append_data(&mut header, path, data))
            .doing(format!("cannot pack {}", path.display()))
    }

    fn extend(&mut self, extensions: &[(String, Vec<u8>)]) -> std::io::Result<()> {
        let extensions = extensions.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        self.builder.append_pax_extensions(extensions)
    }
}

fn header(status: &Stat, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(status.st_mode & 0o7777);
    header.set_uid(status.st_uid.into());
    header.set_gid(status.st_gid.into());
    header.set_mtime(u64::try_from(status.st_mtime).unwrap_or(0));
    header.set_size(size);
    header
}

/// When it was changed, exactly (pax(1), "pax Extended Header").
fn time(status: &Stat) -> (String, Vec<u8>) {
    let text = format!("{}.{:09}", status.st_mtime, status.st_mtime_nsec);
    ("mtime".to_owned(), text.into_bytes())
}

/// What the header of an open file has no room for.
fn extensions(file: impl AsFd, status: &Stat) -> Result<Vec<(String, Vec<u8>)>, Errno> {
    let mut all = vec![time(status)];
    let mut names = vec![0; ATTRIBUTE_MAX_BYTES];
    let length = match flistxattr(&file, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(all),
        other => other?,
    };
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let Ok(text) = std::str::from_utf8(name) else { continue };
        if name.starts_with(OF_OVERLAYS) {
            continue;
        }
        let mut value = vec![0; ATTRIBUTE_MAX_BYTES];
        let length = fgetxattr(&file, text, &mut value[..])?;
        value.truncate(length);
        all.push((format!("SCHILY.xattr.{text}"), value));
    }
    Ok(all)
}

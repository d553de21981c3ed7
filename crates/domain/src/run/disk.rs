//! Disk images. All of them are opened here, before the machine runs.
//!
//! The user names an image's format, or the image's first bytes tell it. If they only suggest that
//! it is raw, the guest may not write the header of another format ([`vmm::disk::Raw`]).

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spec::Format;
use vmm::disk::{
    Disk, Extent, Image, Named, Overlay, QCOW2_MAGIC, Qcow2, Qcow2Error, Raw, SECTOR_BYTES,
};

use crate::say::say;

pub(super) mod lock;

/// What the default kernel needs for them, in the order in which it is loaded.
pub const DRIVERS: [&str; 1] = ["virtio_blk"];

/// Why a file is no disk.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {path} as a disk: {reason}", path = path.display())]
pub struct Error {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("{0}")]
    Open(io::Error),
    #[error("{0}; add ,ro or ,snapshot to use a file that is not writable")]
    OpenToWrite(io::Error),
    #[error("it is a directory")]
    Directory,
    #[error("it is neither a file nor a block device")]
    Kind,
    #[error("it has {0} bytes, which is less than one sector of 512")]
    TooSmall(u64),
    #[error("it is not a qcow2 image")]
    NotQcow2,
    #[error("the qcow2 image cannot be opened: {0}")]
    Qcow2(Qcow2Error),
    #[error("it is not a qcow2 image, so it has no backing file or data files")]
    RefersToNothing,
    #[error(
        "another machine uses it (QEMU, or biv){}",
        if *.read_only { " and writes to it" } else { "; add ,ro to share it read-only" }
    )]
    InUse { read_only: bool },
    #[error(
        "the machine's root is an image that has been rebuilt since the snapshot, or that --image \
         does not name"
    )]
    OtherImage,
    #[error("extent {0} ends behind the end of the file, which has {1} bytes")]
    ExtentBehindEnd(spec::Extent, u64),
    #[error("only a raw image has extents, and this is a qcow2 image")]
    ExtentsOfQcow2,
    #[error(
        "another machine uses it as a whole or has a part of it that overlaps, and one of the two \
         writes"
    )]
    ExtentInUse,
    #[error("cannot create the temporary file for the guest's writes: {0}")]
    Snapshot(io::Error),
}

impl Error {
    /// What is wrong with it, without its name.
    pub fn reason(&self) -> String {
        self.reason.to_string()
    }
}

/// A machine whose root is an image goes on without that image as it was: `name` is another, or none.
pub fn other_image(name: &str) -> Error {
    Error { path: name.into(), reason: Reason::OtherImage }
}

/// Opens a disk and everything that belongs to it.
///
/// # Errors
///
/// [`Error`] says what to do.
pub fn open(argument: &spec::Disk) -> Result<Disk, Error> {
    let spec::Disk { path, snapshot, .. } = argument;
    let failed = |reason| Error { path: path.clone(), reason };
    let image = open_image(argument).map_err(failed)?;
    let extents = extents(argument, image.bytes()).map_err(failed)?;
    let image: Box<dyn Image> = match snapshot {
        true => {
            let top =
                host::nameless::file("disk").map_err(|error| failed(Reason::Snapshot(error)))?;
            let overlay = Overlay::new(image, top);
            Box::new(overlay.map_err(|error| failed(Reason::Snapshot(error)))?)
        }
        false => image,
    };
    let serial = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Disk {
        serial,
        name: path.display().to_string(),
        image,
        read_only: argument.is_read_only(),
        extents,
        complain: Arc::new(say),
    })
}

fn open_image(argument: &spec::Disk) -> Result<Box<dyn Image>, Reason> {
    let writes = argument.keeps_writes();
    let file = match argument.extents.is_empty() {
        true => open_locked(&argument.path, writes)?,
        false => open_parts(argument, writes)?,
    };
    let length = (&file).seek(SeekFrom::End(0)).map_err(Reason::Open)?;
    let mut magic = [0; QCOW2_MAGIC.len()];
    let is_qcow2 = file.read_exact_at(&mut magic, 0).is_ok() && magic == QCOW2_MAGIC;
    match argument.format {
        Some(Format::Qcow2) if !is_qcow2 => Err(Reason::NotQcow2),
        None if is_qcow2 && !argument.extents.is_empty() => Err(Reason::ExtentsOfQcow2),
        None | Some(Format::Qcow2) if is_qcow2 => qcow2(argument, file, writes),
        _ if named(argument) != Named::default() => Err(Reason::RefersToNothing),
        format => raw(argument, file, length, format.is_none()),
    }
}

/// The files that the image may refer to.
fn named(disk: &spec::Disk) -> Named {
    Named { backing: disk.backing.clone(), data: disk.data_files.clone() }
}

fn qcow2(argument: &spec::Disk, file: File, writes: bool) -> Result<Box<dyn Image>, Reason> {
    let open = |path: &Path, writes| {
        open_locked(path, writes).map_err(|reason| io::Error::other(reason.to_string()))
    };
    let image =
        Qcow2::new(file, &argument.path, writes, named(argument), open).map_err(Reason::Qcow2)?;
    match image.bytes() {
        0 => Err(Reason::TooSmall(0)),
        _ => Ok(Box::new(image)),
    }
}

/// Opens a file that no other machine writes to meanwhile, or even reads if this one `writes`.
fn open_locked(path: &Path, writes: bool) -> Result<File, Reason> {
    let file = open_file(path, writes)?;
    match lock::is_had(&lock::lock(&file, writes), path) {
        true => Ok(file),
        false => Err(Reason::InUse { read_only: !writes }),
    }
}

/// Opens a file of which this machine has parts: no other one writes to these meanwhile, or even reads what this one
/// writes.
fn open_parts(argument: &spec::Disk, writes: bool) -> Result<File, Reason> {
    let file = open_file(&argument.path, writes)?;
    match lock::is_had(&lock::lock_parts(&file, &argument.extents, writes), &argument.path) {
        true => Ok(file),
        false => Err(Reason::ExtentInUse),
    }
}

/// The parts of an image with so many bytes that are the disk.
fn extents(argument: &spec::Disk, bytes: u64) -> Result<Vec<Extent>, Reason> {
    let extent = |extent: &spec::Extent| {
        let spec::Extent { start, bytes: length, read_only, .. } = extent;
        if start.checked_add(*length).is_none_or(|end| end > bytes) {
            return Err(Reason::ExtentBehindEnd(extent.clone(), bytes));
        }
        let (start, sectors) = (start / SECTOR_BYTES, length / SECTOR_BYTES);
        let is_writable = !argument.read_only && !read_only;
        Ok(Extent { image: 0, start, sectors, is_writable })
    };
    argument.extents.iter().map(extent).collect()
}

fn raw(
    argument: &spec::Disk,
    file: File,
    length: u64,
    is_guessed: bool,
) -> Result<Box<dyn Image>, Reason> {
    if length < SECTOR_BYTES {
        return Err(Reason::TooSmall(length));
    }
    if !length.is_multiple_of(SECTOR_BYTES) {
        let (name, more) = (argument.path.display(), length % SECTOR_BYTES);
        say(&format!(
            "{name}: the last {more} bytes, less than a sector, are not visible to the guest"
        ));
    }
    Ok(Box::new(Raw::new(file, length, is_guessed)))
}

/// Opens a file or a block device, and nothing that would block.
fn open_file(path: &Path, writes: bool) -> Result<File, Reason> {
    let mut options = OpenOptions::new();
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = options.read(true).write(writes).custom_flags(nonblocking).open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::IsADirectory => Reason::Directory,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if writes => {
            Reason::OpenToWrite(error)
        }
        _ => Reason::Open(error),
    })?;
    let kind = file.metadata().map_err(Reason::Open)?.file_type();
    match kind {
        kind if kind.is_dir() => Err(Reason::Directory),
        kind if kind.is_file() || kind.is_block_device() => Ok(file),
        _ => Err(Reason::Kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opening it fails, in words that help.
    fn check(path: &Path, text: &str, expected: &str) {
        let argument = spec::Disk::parse(format!("{}{text}", path.display()).into()).unwrap();
        let error = open(&argument).expect_err("no disk").to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&path.display().to_string()) && !error.contains('\n'), "{error}");
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        let directory = std::env::temp_dir().join(format!("biv-disks-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let small = directory.join("small");
        std::fs::write(&small, [0; 511]).unwrap();
        check(&directory, "", "directory");
        check(&directory, ",ro", "directory");
        check(&directory.join("none"), "", "No such file");
        check(&small, "", "it has 511 bytes");
        check(Path::new("/dev/null"), "", "neither a file nor a block device");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn two_machines_do_not_write_to_one_file() {
        let path = std::env::temp_dir().join(format!("biv-locked-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).unwrap();
        let try_both = |first: &str, second: &str| {
            let argument =
                |text: &str| spec::Disk::parse(format!("{}{text}", path.display()).into()).unwrap();
            let _first = open(&argument(first)).unwrap();
            open(&argument(second)).map(|_| ()).map_err(|error| error.to_string())
        };
        for (first, second) in [("", ""), ("", ",ro"), (",ro", ""), (",snapshot", "")] {
            let error = try_both(first, second).expect_err("both have it");
            assert!(error.contains("another machine"), "{error}");
        }
        for (first, second) in [(",ro", ",ro"), (",snapshot", ",ro"), (",snapshot", ",snapshot")] {
            try_both(first, second).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
    }
}

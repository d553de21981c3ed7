//! The root of a machine whose image never changes, as a disk. The guest's kernel looks up names
//! and attributes itself; of a shared directory it would have to ask the file server for each.
//!
//! 1. *It comes behind the user's disks*, whose names in the guest stay what they are. Our init
//!    finds it by a serial number that no other disk has: theirs are names of files, and no name of
//!    a file has a slash.
//! 2. *It stays the same* as long as the machine lives, and in its snapshots: a kernel does not
//!    expect that blocks which it has read change. So a snapshot records which image it was, and
//!    goes on with no other.
//! 3. *Where the disk cannot be made, the directory is shared*, which is slower and shows the same
//!    files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use erofs::Identity;
use rustix::fs::OFlags;
use vmm::disk::{Disk, Raw};

use super::disk;
use super::error::Error;
use crate::say::say;
use provision::images::Image;

/// The driver of its file system.
pub const FILE_SYSTEM: &str = "erofs";

/// What mounting it takes besides the driver of disks, in the order in which it is loaded. The first is a module
/// until Linux 6.14.
pub const DRIVERS: &[&str] = &["libcrc32c", FILE_SYSTEM];

/// So many digits of what it is are in its serial number, which has 20 bytes.
const SERIAL_DIGITS: usize = 14;

/// See above.
#[derive(Debug)]
pub struct ImageDisk {
    file: File,
    identity: Identity,
    /// What the image is called.
    name: String,
}

impl ImageDisk {
    /// That of an image for a kernel that does, or does not, have the file system as a module; none if the directory
    /// is to be shared.
    pub fn choose(image: &Image, is_known: bool) -> Option<Self> {
        if !is_known {
            tracing::info!(
                "the kernel has no module erofs, or an older biv fetched it: the image is shared \
                 as a directory"
            );
            return None;
        }
        match Self::open(image) {
            Ok(disk) => Some(disk),
            Err(error) => {
                tracing::info!("{error}: the image is shared as a directory");
                None
            }
        }
    }

    /// The one that a machine had.
    ///
    /// # Errors
    ///
    /// The image is another now, or it cannot be had.
    pub fn same(image: &Image, identity: Identity) -> Result<Self, Error> {
        let disk = Self::open(image)?;
        match disk.identity == identity {
            true => Ok(disk),
            false => Err(disk::other_image(&image.name).into()),
        }
    }

    fn open(image: &Image) -> Result<Self, Error> {
        let path = image.disk()?;
        let failed = |error| Error::Open { path: path.clone(), error };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let file = opened.map_err(failed)?;
        let nothing = || io::Error::new(io::ErrorKind::InvalidData, "it has no file system");
        let identity = Identity::read(&file).and_then(|found| found.ok_or_else(nothing));
        Ok(Self { identity: identity.map_err(failed)?, file, name: image.name.clone() })
    }

    /// Which file system it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// What the guest finds it by.
    #[must_use]
    pub fn serial(&self) -> String {
        format!("image/{}", &self.identity.to_string()[..SERIAL_DIGITS])
    }

    /// What it is to the machine.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn into_disk(self) -> io::Result<Disk> {
        let bytes = self.file.metadata()?.len();
        Ok(Disk {
            serial: self.serial(),
            name: format!("the image {}", self.name),
            image: Box::new(Raw::new(self.file, bytes, false)),
            extents: Vec::new(),
            read_only: true,
            complain: Arc::new(say),
        })
    }
}

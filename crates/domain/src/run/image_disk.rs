//! The root of a machine whose image never changes, as a disk. The guest's kernel looks up names
//! and attributes itself; of a shared directory it would have to ask the file server for each.
//!
//! 1. *It comes behind the user's disks*, whose names in the guest stay what they are. Our init
//!    finds it by a serial number that no other disk has: theirs are names of files, and no name of
//!    a file has a slash. Where disks have no serial numbers, it is told the disk's name.
//! 2. *It stays the same* as long as the machine lives, and in its snapshots: a kernel does not
//!    expect that blocks which it has read change. So a snapshot records which image it was, and
//!    goes on with no other.
//! 3. *Where the disk cannot be made, the directory is shared*, or copied into the guest's memory, which is slower and
//!    shows the same files.
//! 4. *An image with layers has them on partitions of its disk* ([`super::partitions`]): each is a
//!    file of the store, which other images and machines have, too. It has no directory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use erofs::Identity;
use protocol::mounts::{Kind, Layers};
use rustix::fs::{MemfdFlags, OFlags, memfd_create};
use vmm::disk::{self as disks, Disk, Joined, Raw};

use super::disk;
use super::error::Error;
use super::partitions::{Partition, Table};
use crate::say::say;
use provision::images::Image;

/// The driver of its file system.
pub const FILE_SYSTEM: &str = "erofs";

/// The driver of what is laid over it.
pub const OVERLAY: &str = "overlay";

/// What mounting it takes besides the driver of disks, in the order in which it is loaded. The first is a module
/// until Linux 6.14.
pub const DRIVERS: &[&str] = &["libcrc32c", FILE_SYSTEM];

/// So many digits of what it is are in its serial number, which has 20 bytes.
const SERIAL_DIGITS: usize = 14;

/// See above.
#[derive(Debug)]
pub struct ImageDisk {
    /// The file system, or one for each layer, the lowest first.
    files: Vec<(File, Partition)>,
    /// They are on partitions.
    has_layers: bool,
    identity: Identity,
    /// What the image is called.
    name: String,
}

impl ImageDisk {
    /// That of an image for a kernel that does, or does not, have the file system as a module; none if the guest is
    /// to have the directory instead, in the way that is named.
    pub fn choose(image: &Image, is_known: bool, instead: &str) -> Option<Self> {
        if !is_known {
            tracing::info!(
                "the kernel has no module erofs, or an older biv fetched it: the image is {instead}"
            );
            return None;
        }
        match Self::open(image) {
            Ok(disk) => Some(disk),
            Err(error) => {
                tracing::info!("{error}: the image is {instead}");
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

    /// That of an image of these layers, the lowest first.
    ///
    /// # Errors
    ///
    /// [`Error::Open`].
    pub fn of_layers(name: &str, layers: &[PathBuf]) -> Result<Self, Error> {
        let files = layers.iter().map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
        let mut hasher = blake3::Hasher::new();
        for (_, layer) in &files {
            hasher.update(&layer.identity.0).update(&layer.bytes.to_le_bytes());
        }
        let mut identity = Identity([0; 16]);
        identity.0.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Ok(Self { files, has_layers: true, identity, name: name.to_owned() })
    }

    /// The one that a machine had.
    ///
    /// # Errors
    ///
    /// The image is another now, or it cannot be had.
    pub fn same_layers(name: &str, layers: &[PathBuf], identity: Identity) -> Result<Self, Error> {
        let disk = Self::of_layers(name, layers)?;
        match disk.identity == identity {
            true => Ok(disk),
            false => Err(disk::other_image(name).into()),
        }
    }

    fn open(image: &Image) -> Result<Self, Error> {
        let (file, partition) = open(&image.disk()?)?;
        let (identity, name) = (partition.identity, image.name.clone());
        Ok(Self { files: vec![(file, partition)], has_layers: false, identity, name })
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

    /// How the guest's init mounts it: the kind, and the source. The guest's kernel calls the disk `device`, or nobody
    /// knows how.
    #[must_use]
    pub fn mount(&self, device: Option<String>) -> (Kind, Vec<u8>) {
        let disk = device.unwrap_or_else(|| self.serial()).into_bytes();
        match self.has_layers {
            true => {
                let count = u8::try_from(self.files.len()).unwrap_or(u8::MAX);
                (Kind::OverlaidLayers, Layers { disk, count }.encode())
            }
            false => (Kind::OverlaidDisk, disk),
        }
    }

    /// What it is to the machine.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn into_disk(self) -> io::Result<Disk> {
        let (serial, name) = (self.serial(), format!("the image {}", self.name));
        let partitions: Vec<_> = self.files.iter().map(|(_, partition)| *partition).collect();
        let raw = |(file, partition): (File, Partition)| Raw::new(file, partition.bytes, false);
        let mut files = self.files.into_iter().map(raw);
        let image: Box<dyn disks::Image> = match self.has_layers {
            true => {
                let Table { head, tail } = Table::new(&partitions, self.identity);
                let parts = [in_memory(&head)?].into_iter().chain(files);
                Box::new(Joined::new(parts.chain([in_memory(&tail)?]).collect()))
            }
            false => Box::new(files.next().ok_or(io::ErrorKind::NotFound)?),
        };
        let (extents, complain) = (Vec::new(), Arc::new(say));
        Ok(Disk { serial, name, image, extents, read_only: true, complain })
    }
}

/// A file system of ours.
fn open(path: &Path) -> Result<(File, Partition), Error> {
    let failed = |error| Error::Open { path: path.to_owned(), error };
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(failed)?;
    let nothing = || io::Error::new(io::ErrorKind::InvalidData, "it has no file system");
    let identity = Identity::read(&file).and_then(|found| found.ok_or_else(nothing));
    let (identity, bytes) = (identity.map_err(failed)?, file.metadata().map_err(failed)?.len());
    Ok((file, Partition { identity, bytes }))
}

/// A part of a disk that is nowhere else.
fn in_memory(bytes: &[u8]) -> io::Result<Raw> {
    let file = File::from(memfd_create("biv-partitions", MemfdFlags::CLOEXEC)?);
    file.write_all_at(bytes, 0)?;
    Ok(Raw::new(file, bytes.len() as u64, false))
}

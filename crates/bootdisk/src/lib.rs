//! What a disk would boot, found without running anything of it: the kernel, the initial RAM disk and the command line
//! that its boot loader's configuration names by default.
//!
//! - [`find`]: all of it.
//! - `partitions`: the partition table (GPT, MBR, or a file system on the whole disk); `window`: a part of the disk.
//! - `volumes`: the file systems in it that can be read (ext2, ext3, ext4, FAT), and the names of others; [`served`]:
//!   those that somebody else reads (xfs, btrfs).
//! - `grub`: GRUB's configuration, a small part of its script language (`script` has its syntax); `entries`: the files
//!   of the Boot Loader Specification, as systemd-boot and Fedora's GRUB have them.
//!
//! What it is not: a boot loader. It asks nobody, draws no menu, and loads no modules.
//!
//! What rules it:
//!
//! 1. *The disk is hostile.* Any bytes end in a [`Bootable`] or an [`Error`], within the limits of `limits`: of
//!    lengths, of depths, and of steps. This is safe code, over libraries that are; whoever calls it confines the
//!    process besides.
//! 2. *It knows no host*: it reads through [`Storage`], and writes nothing.
//! 3. *What it does not understand is left out*, and never guessed: a command of a script that it does not know fails.

#![forbid(unsafe_code)]

mod choice;
mod entries;
mod error;
mod grub;
pub mod limits;
mod partitions;
mod script;
pub mod served;
mod storage;
mod versions;
mod volumes;
mod window;

use std::rc::Rc;

use choice::Choice;
pub use error::Error;
use served::Connection;
pub use storage::Storage;
use volumes::Volumes;

/// What a disk would boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bootable {
    /// What its boot loader's menu calls it.
    pub title: String,
    /// The kernel's file.
    pub kernel: Vec<u8>,
    /// The files of the initial RAM disk, one behind the other.
    pub initrd: Vec<u8>,
    /// The kernel's command line.
    pub command_line: String,
}

/// Finds what a disk boots by default. Its xfs and btrfs are read by whoever is at the other end of `server`.
///
/// # Errors
///
/// [`Error`] says what is there instead: [`Error::Unread`], if xfs or btrfs are and nobody reads them.
pub fn find(
    storage: Rc<dyn Storage>,
    server: Option<Box<dyn Connection>>,
) -> Result<Bootable, Error> {
    let volumes = Volumes::of(storage, server);
    found(&volumes).map_err(|error| volumes.blamed(error))
}

fn found(volumes: &Volumes) -> Result<Bootable, Error> {
    let choice = match grub::choose(volumes)? {
        Some(choice) => choice,
        None => entries::choose(volumes)?.ok_or_else(|| Error::NoLoader(volumes.described()))?,
    };
    let read = |(volume, path): &(usize, String), limit| {
        let missing = || Error::Missing { title: choice.title.clone(), path: path.clone() };
        volumes.read(*volume, path, limit)?.ok_or_else(missing)
    };
    let kernel = read(&choice.kernel, limits::KERNEL_MAX_BYTES)?;
    let mut initrd = Vec::new();
    for file in &choice.initrds {
        let left = limits::INITRD_MAX_BYTES.saturating_sub(initrd.len() as u64);
        let contents = read(file, left)?;
        match initrd.is_empty() {
            true => initrd = contents,
            false => initrd.extend(contents),
        }
        initrd.resize(initrd.len().next_multiple_of(limits::ARCHIVE_ALIGNMENT), 0);
    }
    let Choice { title, command_line, .. } = choice;
    Ok(Bootable { title, kernel, initrd, command_line })
}

#[cfg(test)]
mod tests;

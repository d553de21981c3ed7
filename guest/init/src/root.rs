//! The root file system, where it is not the one that the kernel unpacked: a directory of the host's,
//! through virtio-fs, most often below an overlay in memory, or a disk; and other directories of the
//! host's.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use protocol::mounts::{Kind, Mount};
use rustix::mount::{MountFlags, mount, mount_move};

use crate::disk;
use crate::system::lift;

/// Where the new root is put together.
const WORK: &str = "/.bivouac/root";

/// Enters the root of what the host wants mounted, if there is one; the other directories, and whether a
/// root was entered, which is some system's own and not what the kernel unpacked.
pub fn enter(list: &[u8]) -> io::Result<(Vec<Mount>, bool)> {
    let mounts = Mount::decode_all(list).map_err(io::Error::other)?;
    let (roots, others): (Vec<_>, Vec<_>) =
        mounts.into_iter().partition(|mount| mount.kind != Kind::Directory);
    let Some(root) = roots.first() else { return Ok((others, false)) };
    fs::create_dir_all(WORK)?;
    match root.kind {
        Kind::OverlaidRoot => overlay(root)?,
        Kind::DiskRoot => {
            let name = String::from_utf8_lossy(&root.source);
            disk::mount_disk(&name, root.is_read_only, Path::new(WORK))?;
        }
        _ => mount_shared(root, Path::new(WORK))?,
    }
    // What the kernel unpacked is of no more use, and takes memory. We ourselves run on.
    let _ = fs::remove_dir_all("/.bivouac/drivers");
    switch()?;
    Ok((others, true))
}

fn overlay(root: &Mount) -> io::Result<()> {
    const BELOW: &str = "/.bivouac/below";
    const ABOVE: &str = "/.bivouac/above";
    for place in [BELOW, ABOVE] {
        fs::create_dir_all(place)?;
    }
    mount_shared(root, Path::new(BELOW))?;
    // What is written may take almost all of the memory, as it could on a disk.
    lift(mount("overlay", ABOVE, "tmpfs", MountFlags::empty(), c"mode=0755,size=90%"))?;
    for place in ["upper", "work"] {
        fs::create_dir_all(Path::new(ABOVE).join(place))?;
    }
    copy_owner(BELOW, &format!("{ABOVE}/upper"))?;
    let layers = c"lowerdir=/.bivouac/below,upperdir=/.bivouac/above/upper,\
                   workdir=/.bivouac/above/work,xino=off";
    lift(mount("overlay", WORK, "overlay", MountFlags::empty(), layers))
}

/// The root directory is as it is below.
fn copy_owner(from: &str, to: &str) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, chown};
    let metadata = fs::metadata(from)?;
    fs::set_permissions(to, metadata.permissions())?;
    chown(to, Some(metadata.uid()), Some(metadata.gid()))
}

fn mount_shared(what: &Mount, place: &Path) -> io::Result<()> {
    let flags = if what.is_read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let source = std::ffi::OsStr::from_bytes(&what.source);
    lift(mount(source, place, "virtiofs", flags, None))
}

/// Make the new root the only one.
fn switch() -> io::Result<()> {
    std::env::set_current_dir(WORK)?;
    lift(mount_move(".", "/"))?;
    lift(rustix::process::chroot("."))?;
    std::env::set_current_dir("/")
}

/// Mount a directory of the host's; its place is made if it is not there.
pub fn mount_volume(volume: &Mount) -> io::Result<()> {
    let place = Path::new(std::ffi::OsStr::from_bytes(&volume.place));
    if !place.is_dir() {
        fs::create_dir_all(place)?;
    }
    mount_shared(volume, place)
}

//! The root file system, if it is not the one that the kernel has unpacked: a directory of the host
//! through virtio-fs or 9p, an image of one on a disk, layers of one on the partitions of a disk, or a disk; all but
//! the last mostly below an overlay in memory. And other directories of the host.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use protocol::mounts::{FileSystem, Kind, Layers, Mount};
use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_move};

use crate::layers::copy_owner;
use crate::{accounts, disk, nine, stores};

/// What a kernel lacks that knows no virtio-fs.
const NO_DRIVER: &str = "the guest's kernel cannot mount directories of the host: fuse and \
                         virtiofs must be \
                         built in (CONFIG_FUSE_FS, CONFIG_VIRTIO_FS), or 9p (CONFIG_9P_FS, \
                         CONFIG_NET_9P_VIRTIO)";

/// What it lacks if it finds no device.
const NO_BUS: &str = "the guest's kernel does not find the virtio device of this directory: \
                      virtio_pci must be \
                      built in (CONFIG_VIRTIO_PCI)";

/// Where the new root is put together: the whole, what it is laid over, the layers of that, and what is written.
const WORK: &str = "/.bivouac/root";
const BELOW: &str = "/.bivouac/below";
const LAYERS: &str = "/.bivouac/layer";
const ABOVE: &str = "/.bivouac/above";

/// The attribute of a directory that hides what is below it (Linux, `Documentation/filesystems/overlayfs.rst`).
const OPAQUE: &str = "trusted.overlay.opaque";

/// Prepares a mount of this kind in a root that is to be made of these layers, lower and upper.
pub type Lead = fn(Kind, &Path, &Path) -> io::Result<()>;

/// Enters the root of what the host wants mounted, if there is one; the other directories, and what kind of
/// root was entered, which is some system's own and not what the kernel unpacked. What is not a directory of the user's
/// is prepared by `lead` in a root that is made of a lower and an upper layer.
pub fn enter(list: &[u8], lead: Lead) -> io::Result<(Vec<Mount>, Option<Kind>)> {
    let mounts = Mount::decode_all(list).map_err(io::Error::other)?;
    let (roots, others): (Vec<_>, Vec<_>) =
        mounts.into_iter().partition(|mount| mount.kind.is_root());
    let Some(root) = roots.first() else { return Ok((others, None)) };
    fs::create_dir_all(WORK)?;
    match root.kind {
        Kind::OverlaidRoot | Kind::OverlaidDisk | Kind::OverlaidLayers => {
            let others = others.iter().map(|mount| mount.kind);
            overlay(root, |lower, upper| {
                others
                    .filter(|kind| *kind != Kind::Directory)
                    .try_for_each(|kind| lead(kind, lower, upper))
            })?;
        }
        Kind::DiskRoot => {
            let name = String::from_utf8_lossy(&root.source);
            disk::mount_disk(&name, root.is_read_only, Path::new(WORK))?;
        }
        _ => mount_shared(root, Path::new(WORK))?,
    }
    // What the kernel unpacked is of no more use, and takes memory. We ourselves run on.
    let _ = fs::remove_dir_all("/.bivouac/drivers");
    switch()?;
    Ok((others, Some(root.kind)))
}

fn overlay(root: &Mount, prepare: impl FnOnce(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    for place in [BELOW, ABOVE] {
        fs::create_dir_all(place)?;
    }
    let lower = match root.kind {
        Kind::OverlaidLayers => mount_layers(&root.source)?,
        kind => {
            match kind {
                Kind::OverlaidDisk => disk::mount_image(&root.source, None, Path::new(BELOW))?,
                _ => mount_shared(root, Path::new(BELOW))?,
            }
            BELOW.to_owned()
        }
    };
    // What is written may take almost all of the memory, as it could on a disk.
    lift(mount("overlay", ABOVE, "tmpfs", MountFlags::empty(), c"mode=0755,size=90%"))?;
    for place in ["upper", "work"] {
        fs::create_dir_all(Path::new(ABOVE).join(place))?;
    }
    let upper = Path::new(ABOVE).join("upper");
    copy_owner(Path::new(BELOW), &upper)?;
    prepare(Path::new(BELOW), &upper)?;
    if root.kind == Kind::OverlaidLayers {
        // That was to look at them.
        lift(rustix::mount::unmount(BELOW, UnmountFlags::empty()))?;
    }
    let layers = format!("lowerdir={lower},upperdir={ABOVE}/upper,workdir={ABOVE}/work,xino=off");
    let layers = CString::new(layers)?;
    lift(mount("overlay", WORK, "overlay", MountFlags::empty(), layers.as_c_str()))?;
    if root.kind == Kind::OverlaidRoot {
        accounts::replace_unreadable(Path::new(WORK));
    }
    stores::prepare(Path::new(WORK), &Path::new(ABOVE).join("stores"));
    Ok(())
}

/// Mounts layers, and all of them, to be looked at, at [`BELOW`]; returns how overlayfs is told of them, the highest
/// first.
fn mount_layers(source: &[u8]) -> io::Result<String> {
    let Layers { disk, count } = Layers::decode(source).map_err(io::Error::other)?;
    let mut places = Vec::new();
    for number in (1..=count).rev() {
        let place = format!("{LAYERS}/{number}");
        fs::create_dir_all(&place)?;
        disk::mount_image(&disk, Some(number), Path::new(&place))?;
        // Overlayfs asks no root whether it hides what is below.
        let hides = getxattr(&place, OPAQUE, &mut [0; 1][..]).is_ok();
        places.push(place);
        if hides {
            break;
        }
    }
    let (flags, lower) = (MountFlags::RDONLY, places.join(":"));
    match places.as_slice() {
        [only] => lift(mount_bind(only.as_str(), BELOW))?,
        _ => {
            let layers = CString::new(format!("lowerdir={lower},xino=off"))?;
            lift(mount("overlay", BELOW, "overlay", flags, layers.as_c_str()))?;
        }
    }
    Ok(lower)
}

/// Mounts a directory of the host's.
pub fn mount_shared(what: &Mount, place: &Path) -> io::Result<()> {
    let flags = if what.is_read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let source = std::ffi::OsStr::from_bytes(&what.source);
    let (file_system, options) = match what.file_system {
        FileSystem::VirtioFs => ("virtiofs", None),
        FileSystem::Nine => ("9p", Some(nine::options(what.kind))),
    };
    mount(source, place, file_system, flags, options.as_deref()).map_err(|errno| match errno {
        Errno::NODEV => io::Error::other(NO_DRIVER),
        // The file system is there, and the device is not.
        Errno::INVAL | Errno::NOENT => io::Error::other(NO_BUS),
        errno => errno.into(),
    })
}

/// Make the new root the only one.
fn switch() -> io::Result<()> {
    std::env::set_current_dir(WORK)?;
    lift(mount_move(".", "/"))?;
    lift(rustix::process::chroot("."))?;
    std::env::set_current_dir("/")
}

/// Mounts directories of the host's, each at a place that is made if it is not there; returns why not, for each
/// that is not to be seen at its place in the end.
pub fn mount_volumes(volumes: &[Mount]) -> Vec<String> {
    let mounted: Vec<_> = volumes.iter().map(|volume| (volume, mount_volume(volume))).collect();
    let is_covered = |volume: &Mount, device: u64| {
        fs::metadata(place_of(volume)).map_or(true, |found| found.dev() != device)
    };
    let why_not = |(volume, result): (&Mount, io::Result<u64>)| match result {
        Ok(device) if is_covered(volume, device) => Some("another directory covers it".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    };
    let failure = |(volume, result)| {
        let why = why_not((volume, result))?;
        Some(format!("no directory of the host at {}: {why}", place_of(volume).display()))
    };
    mounted.into_iter().filter_map(failure).collect()
}

fn place_of(volume: &Mount) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(&volume.place))
}

/// Mounts one; the number by which its files tell that they are its.
fn mount_volume(volume: &Mount) -> io::Result<u64> {
    let place = place_of(volume);
    if !place.is_dir() {
        make_place(place).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                    "there is a file in its way".to_owned()
                }
                _ => format!("the directory is not there and cannot be made: {error}"),
            };
            io::Error::new(error.kind(), why)
        })?;
    }
    mount_shared(volume, place)?;
    Ok(fs::metadata(place)?.dev())
}

/// Makes a directory and those above it that are not there: they belong to whom the one belongs to that they are in, so
/// that whose home directory it is may write beside the place.
fn make_place(place: &Path) -> io::Result<()> {
    let missing: Vec<_> = place.ancestors().take_while(|above| !above.is_dir()).collect();
    fs::create_dir_all(place)?;
    for made in missing.into_iter().rev() {
        if let Some(owner) = made.parent().and_then(|above| fs::metadata(above).ok()) {
            // Where the root is a directory that keeps no owners, they are its own.
            let _ = chown(made, Some(owner.uid()), Some(owner.gid()));
        }
    }
    Ok(())
}

/// The standard library's error for one of the kernel's.
pub fn lift(result: rustix::io::Result<()>) -> io::Result<()> {
    result.map_err(io::Error::from)
}

//! The root file system of a pod.
//!
//! 0. *Given.* A root that the pod's users could not get to is given by the keeper, as a tree of mounts. It is put over
//!    a directory of the host's that is not needed; only this pod's mount namespace has it there.
//! 1. *Stage.* A file system in memory becomes the root, with the host's below it: so every path of the host can be
//!    reached, whatever is mounted where. The layers in which the pod's writes are kept are on it; they go with the
//!    pod, because nothing but its mount namespace has them.
//! 2. *The pod's root* is built below the stage: layers above the directory that it is made from ([`layers`]), devices
//!    ([`devices`]), and directories that it shares with the host.
//! 3. *Entering.* That becomes the root, and the stage, with all of the host, is detached.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pod_protocol::{LAYERS, Setup};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags, mount, mount_bind_recursive,
    mount_change, move_mount, unmount,
};
use rustix::process::pivot_root;

use crate::devices;
use crate::error::{Doing, Error};
use crate::keeper::tell;
use crate::layers::{HOST, Layers, Replaced, mount_points, on_stage};
use crate::resolver;

/// Where the stage is put: any directory does.
const STAGES: [&str; 5] = ["/tmp", "/var", "/mnt", "/usr", "/proc"];

/// Where the directory can be put that the keeper gives: nothing of the host's is needed there.
const GIVEN: [&str; 5] = ["/mnt", "/srv", "/opt", "/home", "/sys"];

/// The pod's root on the stage.
const ROOT: &str = "/root";

/// What of the host's root is each pod's own.
pub const OWN: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];

/// Builds the pod's root, and enters it.
pub fn enter(setup: &Setup) -> Result<(), Error> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    match mount_change("/", flags) {
        // AppArmor may let a process have a user namespace, and no right in it.
        Err(error @ (Errno::PERM | Errno::ACCESS)) => return Err(Error::Forbidden(error)),
        other => other.doing("cannot have mounts of its own")?,
    }
    let hidden = setup.hidden.iter().map(|path| path_of(path)).collect();
    let lower = path_of(&setup.root.path);
    let names = setup.network.as_ref().map(|network| Replaced {
        path: lower.join(resolver::PLACE),
        text: resolver::text(network.nameserver),
    });
    let mut layers = Layers::of_host(hidden, names).doing("cannot read what is mounted")?;
    set_stage()?;
    if setup.root.is_writable {
        let bound = mount_bind_recursive(on_stage(&lower), ROOT);
        bound.doing(format!("cannot use {} as the root", lower.display()))?;
    } else {
        let own: &[&str] = if setup.root.is_host { &OWN } else { &[] };
        layers.lay(&lower, Path::new(ROOT), own)?;
    }
    layers.note_links(Path::new(ROOT)).doing("cannot note the links of the host's")?;
    devices::mount_all(Path::new(ROOT), Path::new(HOST), setup.has_groups)?;
    for shared in &setup.shared {
        share(&path_of(shared))?;
    }
    tell_layers().doing("cannot tell the keeper of the pod's layers")?;
    std::env::set_current_dir(ROOT).doing("cannot enter the pod's root")?;
    pivot_root(".", ".").doing("cannot enter the pod's root")?;
    unmount(".", UnmountFlags::DETACH).doing("cannot leave the host's root")?;
    std::env::set_current_dir("/").doing("cannot enter the pod's root")
}

/// Puts the directory that the keeper gives; returns where it is from now on.
pub fn attach(given: &OwnedFd) -> Result<&'static str, Error> {
    let what = "cannot use the directory that is to be the root";
    let mounted = mount_points(&fs::read("/proc/self/mountinfo").doing(what)?);
    let is_free = |place: &Path| !mounted.iter().any(|point| point.starts_with(place));
    let places = GIVEN.iter().filter(|place| Path::new(place).is_dir());
    let place = places.clone().find(|place| is_free(Path::new(place))).or(places.clone().next());
    let place = place.ok_or(Errno::NOENT).doing(what)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(given, "", CWD, *place, flags).doing(what)?;
    Ok(place)
}

/// Gives the keeper the directory of the layers. Nobody in the pod may have it: what the pod is not to see of the host
/// is removed there.
fn tell_layers() -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let layers = open(Layers::PLACE, flags, Mode::empty())?;
    Ok(tell(LAYERS, &[layers.as_fd()])?)
}

/// Puts the stage, and the host below it.
fn set_stage() -> Result<(), Error> {
    let what = "cannot have a file system in memory";
    let place = STAGES.iter().find(|place| Path::new(place).is_dir()).unwrap_or(&STAGES[0]);
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", *place, "tmpfs", flags, c"mode=0755").doing(what)?;
    let below = |path: &str| Path::new(place).join(path.trim_start_matches('/'));
    for path in [HOST, ROOT, Layers::PLACE] {
        fs::create_dir(below(path)).doing(what)?;
    }
    pivot_root(*place, below(HOST)).doing("cannot leave the host's root")?;
    std::env::set_current_dir("/").doing(what)
}

/// Has the pod see, and write to, a directory of the host at its own place.
fn share(path: &Path) -> Result<(), Error> {
    let what = || format!("cannot share {} with the pod", path.display());
    let place = Path::new(ROOT).join(path.strip_prefix("/").unwrap_or(path));
    make_directories(&place).doing(what())?;
    mount_bind_recursive(on_stage(path), &place).doing(what())
}

fn make_directories(path: &Path) -> io::Result<()> {
    if path.is_dir() { Ok(()) } else { fs::create_dir_all(path) }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

//! The devices of a pod, and the file systems that every pod has of its own.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{MountFlags, mount, mount_bind};

use crate::error::{Doing, Error};

/// The host's devices that a pod has. There are no others.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Links that programs expect.
const LINKS: [(&str, &str); 6] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("/proc/kcore", "core"),
    ("pts/ptmx", "ptmx"),
];

/// The group of terminals, in every distribution.
const OF_TERMINALS: &str = "newinstance,ptmxmode=0666,mode=0620,gid=5";

/// The same where there is only one group.
const OF_TERMINALS_WITHOUT_GROUPS: &str = "newinstance,ptmxmode=0666,mode=0620";

/// Mounts them below `root`, where the host's root is at `host`.
pub fn mount_all(root: &Path, host: &Path, has_groups: bool) -> Result<(), Error> {
    const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
    let at = |kind: &str, place: &str, flags: MountFlags, options: &str| {
        let place = root.join(place);
        let done = directory(&place)
            .and_then(|()| Ok(mount(kind, &place, kind, flags, &*c_text(options)?)?));
        done.doing(format!("cannot mount {kind} in the pod"))
    };
    at("proc", "proc", QUIET, "")?;
    at("tmpfs", "dev", MountFlags::NOSUID.union(MountFlags::NOEXEC), "mode=0755")?;
    let terminals = if has_groups { OF_TERMINALS } else { OF_TERMINALS_WITHOUT_GROUPS };
    at("devpts", "dev/pts", MountFlags::NOSUID.union(MountFlags::NOEXEC), terminals)?;
    at("tmpfs", "dev/shm", QUIET, "mode=1777")?;
    at("mqueue", "dev/mqueue", QUIET, "")?;
    at("tmpfs", "run", MountFlags::NOSUID.union(MountFlags::NODEV), "mode=0755")?;
    at("tmpfs", "tmp", MountFlags::NOSUID.union(MountFlags::NODEV), "mode=1777")?;
    directory(&root.join("sys")).doing("cannot make /sys in the pod")?;
    for name in DEVICES {
        let (from, to) = (host.join("dev").join(name), root.join("dev").join(name));
        let bound = File::create(&to).and_then(|_| Ok(mount_bind(&from, &to)?));
        bound.doing(format!("cannot have the host's /dev/{name} in the pod"))?;
    }
    for (target, name) in LINKS {
        let linked = symlink(target, root.join("dev").join(name));
        linked.doing(format!("cannot make /dev/{name} in the pod"))?;
    }
    Ok(())
}

fn directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn c_text(text: &str) -> io::Result<std::ffi::CString> {
    Ok(std::ffi::CString::new(text)?)
}

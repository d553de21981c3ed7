//! Where container engines keep their images and containers in the guest. They lay them over each other with overlayfs,
//! whose upper layer cannot be on an overlay, such as the guest's root is in most machines. So these directories are
//! of the memory's file system itself, which is below that overlay.
//!
//! They are so only if the root has the engine, and if nothing is in them: what is there is to be seen.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::mount::mount_bind;

use crate::layers::copy_owner;

/// Engines, and where each keeps things, below [`STATE`].
const ENGINES: [(&str, &str); 5] = [
    ("podman", "containers"),
    ("buildah", "containers"),
    ("crio", "containers"),
    ("dockerd", "docker"),
    ("containerd", "containerd"),
];

/// Where programs are, in a root.
const PROGRAMS: [&str; 4] = ["usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin"];

/// What is above those directories, in a root.
const STATE: [&str; 2] = ["var", "var/lib"];

/// Who may look into one that is made here: its engine makes it so.
const MODE: u32 = 0o700;

/// Gives the engines in `root`, an overlay that nobody has entered, their directories, which lie in `memory`. A machine
/// without them is one all the same.
pub fn prepare(root: &Path, memory: &Path) {
    // A link would lead out of a root that is not entered.
    if !STATE.iter().all(|part| is_directory(&root.join(part))) {
        return;
    }
    let has = |program: &str| {
        PROGRAMS.iter().any(|place| root.join(place).join(program).symlink_metadata().is_ok())
    };
    let mut stores: Vec<_> =
        ENGINES.iter().filter(|(program, _)| has(program)).map(|(_, store)| *store).collect();
    stores.dedup();
    for store in stores {
        let _ = mount_store(&root.join(STATE[1]).join(store), &memory.join(store));
    }
}

/// Mounts one, if nothing is there.
fn mount_store(place: &Path, source: &Path) -> io::Result<()> {
    if place.symlink_metadata().is_err() {
        DirBuilder::new().mode(MODE).create(place)?;
    }
    if is_directory(place) && fs::read_dir(place)?.next().is_none() {
        fs::create_dir_all(source)?;
        copy_owner(place, source)?;
        mount_bind(source, place)?;
    }
    Ok(())
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

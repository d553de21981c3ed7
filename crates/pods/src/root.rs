//! Which directories of the host a pod has.

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use pod_protocol::Root;
use session::homes::{self, Wide};
use session::say::say;

use crate::names::Users;
use crate::spec::PodSpec;

/// Where nobody's own files are.
const OF_THE_KERNEL: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/tmp"];

/// What a pod has of the host's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// What its root is made from.
    pub root: Root,
    /// What it shares with the host.
    pub shared: Vec<Vec<u8>>,
    /// What it does not see.
    pub hidden: Vec<Vec<u8>>,
    /// Where its command starts if nobody says.
    pub directory: PathBuf,
}

impl Files {
    /// Those that the description says. As with machines, a pod that has the host's root writes to the current
    /// directory only, unless that is or has all of the user's files, and sees no keys, tokens and passwords.
    pub fn of(spec: &PodSpec, users: &Users) -> io::Result<Files> {
        if let Some(root) = &spec.root {
            let path = fs::canonicalize(root)?;
            if !path.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            let path = path.into_os_string().into_vec();
            let root = Root { path, is_writable: spec.is_writable, is_host: false };
            return Ok(Files {
                root,
                shared: Vec::new(),
                hidden: Vec::new(),
                directory: PathBuf::from("/"),
            });
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let hidden = hidden(&homes::readable(home.clone()));
        let here = here(home, users).filter(|here| !has_secrets(here, &hidden));
        Ok(Files {
            root: Root { path: b"/".to_vec(), is_writable: false, is_host: true },
            shared: here.iter().map(|here| here.as_os_str().as_bytes().to_vec()).collect(),
            hidden: hidden.into_iter().map(|path| path.into_os_string().into_vec()).collect(),
            directory: here.unwrap_or_else(|| PathBuf::from("/")),
        })
    }
}

/// The current directory, if the pod is to share it.
fn here(home: Option<PathBuf>, users: &Users) -> Option<PathBuf> {
    let here = fs::canonicalize(std::env::current_dir().ok()?).ok()?;
    let shown = here.display();
    if let Some(wide) = Wide::of(&here, &homes::own(home)) {
        let is = wide.describe();
        if wide != Wide::Root {
            say(&format!("{shown} {is}: the pod does not share it, and starts in /"));
        }
        return None;
    }
    if !users.are_ours() {
        // Its owner is nobody in the pod.
        say(&format!("{shown} is not shared with the pod, whose users own nothing on the host"));
        return None;
    }
    // A directory that each pod has for itself is not the host's.
    let is_own = OF_THE_KERNEL.iter().any(|place| here == Path::new(place));
    let is_kernels = OF_THE_KERNEL[..4].iter().any(|place| here.starts_with(place));
    (!is_own && !is_kernels).then_some(here)
}

/// Whether a directory has, or is in, what a pod is not to see; which is said.
fn has_secrets(here: &Path, hidden: &[PathBuf]) -> bool {
    let has_any = hidden.iter().any(|path| path.starts_with(here) || here.starts_with(path));
    if has_any {
        say(&format!("{} has keys or passwords: the pod does not share it", here.display()));
    }
    has_any
}

/// Keys, tokens and passwords, by the names that programs give them.
fn hidden(homes: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for home in homes.iter().filter_map(|home| fs::canonicalize(home).ok()) {
        let names = files::server::OF_A_HOME.iter().map(|name| home.join(name));
        let there = names.filter(|path| fs::symlink_metadata(path).is_ok());
        all.extend(there);
    }
    all.sort();
    all.dedup();
    all
}

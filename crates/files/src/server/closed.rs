//! Files of the host that a share hides from everybody: credentials in home directories, and
//! directories of the host's kernel and services.
//!
//! A guest that may run any program may own its kernel: a file system mounted over a directory
//! hides nothing from it. So the server hides these files.
//!
//! 1. *A closed directory is empty, and nothing is created in it; any other closed file does not
//!    exist*, and nothing takes its name. So programs find what they would find in a new home
//!    directory.
//! 2. *A file that existed when the server started is known by device and inode number*: it is
//!    closed by whatever path the guest reaches it, a symbolic link, a bind mount or another name.
//! 3. *A file that is created later is known by its directory and name*, and the directory by
//!    device and inode number, wherever it has been moved: the server notes each directory on the
//!    way to a closed name when the guest looks it up.
//! 4. *A directory that the host's user may not read is closed as well*, in a share that is only to
//!    be read: the guest's root finds it empty, and can put a layer of its own over it. (Whoever may
//!    change such a directory may come to read it, so in other shares it is what it is.)
//! 5. *The root of a share is never closed*: it is the directory that the user has named, or the
//!    current one.
//!
//! The server does not notice other names (hard links) of files *in* a closed directory; only the
//! host's user can have made these.

use std::collections::HashMap;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use locks::Unpoisoned;
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, makedev, statx};

use crate::limits::MAX_CLOSED_FILES;

/// What is closed below a home directory: keys, tokens and passwords, by the names that programs give them.
pub const OF_A_HOME: &[&str] = &[
    ".aws",
    ".azure",
    ".boto",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/chromium",
    ".config/containers/auth.json",
    ".config/doctl",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/glab-cli",
    ".config/google-chrome",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".docker",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".local/state/bivouac",
    ".mozilla",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".ssh",
    ".terraform.d/credentials.tfrc.json",
    ".thunderbird",
    ".vault-token",
];

/// What is closed below the host's root: a guest has its own.
const OF_THE_ROOT: &[&str] = &["dev", "proc", "run", "sys"];

/// A file: device, inode number and when it was made, because the number of one that is gone is used again.
pub type Id = (u64, u64, (i64, u32));

/// How a file that was found is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// As it is.
    Open,
    /// As an empty directory.
    Empty,
    /// Not at all.
    Missing,
}

/// A directory from which closed names can be reached: a list, and how far into its paths this one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    list: &'static [&'static str],
    passed: &'static str,
}

/// What a name in such a directory is.
enum Step {
    Closed,
    Way(Way),
}

impl Way {
    fn step(self, name: &[u8]) -> Option<Step> {
        let paths = self.list.iter().filter_map(|path| {
            let rest = match self.passed {
                "" => path,
                passed => path.strip_prefix(passed)?.strip_prefix('/')?,
            };
            let after = rest.as_bytes().strip_prefix(name)?;
            match after.first() {
                None => Some(Step::Closed),
                Some(b'/') => {
                    let passed = &path[..path.len() - after.len()];
                    Some(Step::Way(Way { list: self.list, passed }))
                }
                Some(_) => None,
            }
        });
        // A path that ends here closes all that is below.
        paths.reduce(|one, other| if matches!(one, Step::Closed) { one } else { other })
    }
}

#[derive(Debug)]
enum Entry {
    Closed,
    Ways(Vec<Way>),
}

/// All that is closed. See above.
#[derive(Debug, Default)]
pub struct Closed {
    known: RwLock<HashMap<Id, Entry>>,
}

impl Closed {
    /// What is closed below the host's root and below these home directories.
    pub fn find(homes: &[PathBuf]) -> Self {
        let closed = Self::default();
        let homes = homes.iter().map(|home| (home.as_path(), OF_A_HOME));
        let tops: Vec<_> = [(Path::new("/"), OF_THE_ROOT)].into_iter().chain(homes).collect();
        for &(top, list) in &tops {
            if let Some(id) = id(top) {
                let _ = closed.note(id, Step::Way(Way { list, passed: "" }));
            }
        }
        for (top, list) in tops {
            closed.find_below(top, list);
        }
        closed
    }

    /// What there is now.
    fn find_below(&self, top: &Path, list: &'static [&'static str]) {
        for path in list {
            let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
            for end in ends {
                let passed = &path[..end];
                let Some(id) = id(&top.join(passed)) else { break };
                let is_last = end == path.len();
                let step = if is_last { Step::Closed } else { Step::Way(Way { list, passed }) };
                // Without room, it is known by its name.
                let _ = self.note(id, step);
            }
        }
    }

    /// Note what something is; false if there is no room.
    fn note(&self, id: Id, step: Step) -> bool {
        let mut known = self.known.write().unpoisoned();
        let is_full = known.len() >= MAX_CLOSED_FILES;
        match (known.get_mut(&id), step) {
            (None, _) if is_full => return false,
            // A link that closes a home directory or the root closes nothing.
            (Some(_), Step::Closed) => {}
            (Some(Entry::Closed), Step::Way(_)) => {}
            (Some(Entry::Ways(ways)), Step::Way(way)) => {
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
            (None, Step::Closed) => drop(known.insert(id, Entry::Closed)),
            (None, Step::Way(way)) => drop(known.insert(id, Entry::Ways(vec![way]))),
        }
        true
    }

    fn step(&self, directory: Id, name: &CStr) -> Option<Step> {
        let known = self.known.read().unpoisoned();
        let Entry::Ways(ways) = known.get(&directory)? else { return None };
        let steps = ways.iter().filter_map(|way| way.step(name.to_bytes()));
        steps.reduce(|one, other| if matches!(one, Step::Closed) { one } else { other })
    }

    /// How a file is shown that was found by this name in that directory.
    pub fn judge(&self, directory: Id, name: &CStr, found: Id, is_directory: bool) -> Shown {
        let is_closed = match self.step(directory, name) {
            Some(Step::Closed) => true,
            Some(step @ Step::Way(_)) if is_directory => {
                !self.note(found, step) || self.is_closed(found)
            }
            _ => self.is_closed(found),
        };
        match (is_closed, is_directory) {
            (false, _) => Shown::Open,
            (true, true) => Shown::Empty,
            (true, false) => Shown::Missing,
        }
    }

    /// Whether nothing may be made, removed or renamed by this name in that directory.
    pub fn has_name(&self, directory: Id, name: &CStr) -> bool {
        matches!(self.step(directory, name), Some(Step::Closed))
    }

    fn is_closed(&self, id: Id) -> bool {
        let known = self.known.read().unpoisoned();
        matches!(known.get(&id), Some(Entry::Closed))
    }
}

/// Which file has these attributes.
pub fn id_of(found: &Statx) -> Id {
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    (device, found.stx_ino, (found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

/// What is at that path, at the end of all links.
fn id(path: &Path) -> Option<Id> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    statx(CWD, path, AtFlags::NO_AUTOMOUNT, mask).ok().map(|found| id_of(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_leads_to_closed_names_only() {
        let home = Way { list: OF_A_HOME, passed: "" };
        let check = |way: Way, name: &str, expected: &str| {
            let step = way.step(name.as_bytes());
            let found = match &step {
                None => "open",
                Some(Step::Closed) => "closed",
                Some(Step::Way(way)) => way.passed,
            };
            assert_eq!(found, expected, "{} {name}", way.passed);
        };
        check(home, ".ssh", "closed");
        check(home, ".ss", "open");
        check(home, ".ssh2", "open");
        check(home, "", "open");
        check(home, ".config", ".config");
        check(home, ".local", ".local");
        let below = |passed| Way { list: OF_A_HOME, passed };
        check(below(".config"), "gh", "closed");
        check(below(".config"), "gtk-3.0", "open");
        check(below(".config"), "git", ".config/git");
        check(below(".config/git"), "credentials", "closed");
        check(below(".config/git"), "config", "open");
        check(below(".local"), "share", ".local/share");
        check(below(".cargo"), "credentials.toml", "closed");
        check(below(".cargo"), "config.toml", "open");
    }

    #[test]
    fn what_has_the_number_of_a_closed_file_that_is_gone_is_open() {
        let home = std::env::temp_dir().join(format!("biv-closed-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join(".netrc"), "secret").unwrap();
        let closed = Closed::find(std::slice::from_ref(&home));
        let (elsewhere, netrc) = (id(Path::new("/")).unwrap(), id(&home.join(".netrc")).unwrap());
        std::fs::remove_dir_all(&home).unwrap();
        let (device, inode, (seconds, nanoseconds)) = netrc;
        let later = (device, inode, (seconds + 1, nanoseconds));
        let judge = |found| closed.judge(elsewhere, c"other-name", found, false);
        assert_eq!((judge(netrc), judge(later)), (Shown::Missing, Shown::Open));
    }
}

//! Home directories of the host. The default shares, and which files are hidden, depend on them.
//!
//! The environment and the host's list of users both name home directories, and either may be
//! wrong: `HOME` can be empty in a service, and another user's after `sudo`. So both count.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// Where other users' home directories are, whom root can read.
const OF_OTHERS: &str = "/home";

/// Root's own.
const OF_ROOT: &str = "/root";

/// Those of who runs us; `home` is what the environment says.
pub fn own(home: Option<PathBuf>) -> Vec<PathBuf> {
    let listed = User::from_uid(Uid::current()).ok().flatten().map(|user| user.dir);
    let homes = home.into_iter().chain(listed);
    // Services have the root, or nothing, for one.
    homes.filter(|home| home.is_absolute() && home != Path::new("/")).collect()
}

/// That of another user of the host, by name or number, perhaps with a group behind.
#[must_use]
pub fn of(user: &str) -> Option<PathBuf> {
    let name = user.split(':').next().unwrap_or_default();
    let by_number = || User::from_uid(Uid::from_raw(name.parse().ok()?)).ok().flatten();
    let found = User::from_name(name).ok().flatten().or_else(by_number);
    found.map(|user| user.dir).filter(|home| home.is_absolute())
}

/// Those whose files we may read: as root, those of other users, too.
pub fn readable(home: Option<PathBuf>) -> Vec<PathBuf> {
    let mut homes = own(home);
    if Uid::effective().is_root() {
        homes.push(OF_ROOT.into());
        let others = fs::read_dir(OF_OTHERS).into_iter().flatten().flatten();
        homes.extend(others.map(|entry| entry.path()));
    }
    homes
}

/// Why a directory is more than a place to work in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wide {
    /// It is a home directory.
    Home,
    /// A home directory is in it.
    AboveHome,
    /// It is the host's root.
    Root,
}

impl Wide {
    /// Whether a directory is that, for who has these home directories. Directories are compared, not
    /// their names.
    pub fn of(directory: &Path, homes: &[PathBuf]) -> Option<Self> {
        let id = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let wanted = id(directory)?;
        if id(Path::new("/")) == Some(wanted) {
            return Some(Self::Root);
        }
        let homes: Vec<_> = homes.iter().filter_map(|home| home.canonicalize().ok()).collect();
        if homes.iter().any(|home| id(home) == Some(wanted)) {
            return Some(Self::Home);
        }
        let mut above = homes.iter().flat_map(|home| home.ancestors().skip(1));
        above.any(|above| id(above) == Some(wanted)).then_some(Self::AboveHome)
    }

    /// In words, after the directory's name.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Home => "is your home directory",
            Self::AboveHome => "has your home directory in it",
            Self::Root => "is the host's root",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_directories_are_known_by_any_name() {
        let place = std::env::temp_dir().join(format!("biv-homes-{}", std::process::id()));
        let home = place.join("home/user");
        fs::create_dir_all(home.join("project")).unwrap();
        std::os::unix::fs::symlink(&home, place.join("link")).unwrap();
        let homes = [place.join("link"), place.join("none")];
        let found = ["home/user", "link", "home", "", "home/user/project"]
            .map(|name| Wide::of(&place.join(name), &homes));
        let root = Wide::of(Path::new("/proc/self/root"), &homes);
        fs::remove_dir_all(&place).unwrap();
        let (home, above) = (Some(Wide::Home), Some(Wide::AboveHome));
        assert_eq!(found, [home, home, above, above, None]);
        assert_eq!(root, Some(Wide::Root));
    }

    #[test]
    fn users_have_homes_by_name_and_number() {
        for root in ["root", "0", "0:0", "root:root"] {
            assert_eq!(of(root), Some("/root".into()), "{root}");
        }
        assert_eq!(of("no such user"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn who_runs_us_has_a_home_whatever_the_environment_says() {
        let listed = own(None);
        assert_eq!(own(Some("/".into())), listed);
        assert_eq!(own(Some("".into())), listed);
        assert_eq!(own(Some("/home/x".into()))[0], Path::new("/home/x"));
    }
}

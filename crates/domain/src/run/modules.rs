//! The modules that a guest's kernel can load: a directory of the host's that it sees at `/lib/modules`, read-only.
//!
//! 1. *They are no part of a guest's boot.* What its devices need is loaded from memory before; all else when somebody
//!    asks for it. So a guest whose modules cannot be shown runs without, unless the user has named them.
//! 2. *All machines share them* on the host, as files of its cache.
//! 3. *A machine that goes on from a snapshot has its file server's share again*, with the same directory if that
//!    is recorded by us and still there, and otherwise with nothing in it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use files::{Owners, Share};
use protocol::mounts::Kind;
use provision::modules::Given;
use rustix::fs::{Mode, OFlags, open};
use spec::Spec;

use super::directories::{Directories, EXCLUSIVE_VALIDITY, ROOT_VALIDITY, check_kind};
use super::error::Error;

/// The list of devices in a directory of modules.
const DEVICES: &str = "modules.devname";

/// A directory with some.
pub struct Modules {
    /// How the guest has them.
    kind: Kind,
    /// Which it is.
    path: PathBuf,
    /// The list of devices whose drivers are there.
    devices: Option<PathBuf>,
    /// How it is shared.
    share: Share,
}

/// Those that the user names for a kernel that calls itself so.
pub fn given(spec: &Spec, release: Option<&str>) -> Result<Option<Given>, Error> {
    let path = spec.boot.modules.as_deref();
    Ok(path.map(|path| Given::find(path, release)).transpose()?)
}

impl Modules {
    /// Those that the user names, or those of the kernel's package, in this directory below this release.
    pub fn choose(
        given: Option<&Given>,
        of_package: Option<(PathBuf, &str)>,
    ) -> Result<Option<Self>, Error> {
        if let Some(given) = given {
            // The user may make some anew while the machine runs.
            let path = std::path::absolute(given.directory())?;
            let share = share(open_directory(&path)?, false);
            check_kind(&path, &share)?;
            let devices = Some(path.join(DEVICES));
            return Ok(Some(Self { kind: Kind::OwnModules, path, devices, share }));
        }
        let Some((path, release)) = of_package else { return Ok(None) };
        let opened = open_directory(&path).map(|directory| share(directory, true));
        match opened.and_then(|share| check_kind(&path, &share).map(|()| share)) {
            Ok(share) => {
                let devices = Some(path.join(release).join(DEVICES));
                Ok(Some(Self { kind: Kind::Modules, path, devices, share }))
            }
            Err(error) => {
                tracing::info!("{error}: the guest's kernel has no modules");
                Ok(None)
            }
        }
    }

    /// Has a guest see them.
    pub fn show(self, directories: &mut Directories) {
        directories.devices = self.devices;
        directories.add_modules(self.kind, self.path, self.share);
    }

    /// Those that a machine has had, in that directory if it is known; whatever is there now.
    pub fn again(path: Option<PathBuf>) -> io::Result<Self> {
        let opened = path.as_deref().and_then(|path| open_directory(path).ok());
        let directory = opened.map_or_else(empty_directory, Ok)?;
        let share = share(directory, true);
        let path = path.unwrap_or_default();
        Ok(Self { kind: Kind::Modules, path, devices: None, share })
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
        .map_err(|errno| Error::Open { path: path.to_owned(), error: errno.into() })
}

/// A directory that has no name any more, in which nothing can be made.
fn empty_directory() -> io::Result<OwnedFd> {
    let path = std::env::temp_dir().join(format!("biv-modules-{}", std::process::id()));
    fs::create_dir(&path)?;
    let opened = open_directory(&path).map_err(|error| io::Error::other(error.to_string()));
    fs::remove_dir(&path)?;
    opened
}

/// Nobody's own files, which `is_still` says never change.
fn share(directory: OwnedFd, is_still: bool) -> Share {
    let caller = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    Share {
        directory,
        is_writable: false,
        allows_privileges: false,
        allows_unknown_kinds: false,
        hides_secrets: false,
        validity_milliseconds: if is_still { EXCLUSIVE_VALIDITY } else { ROOT_VALIDITY },
        host_owner: caller,
        guest_owner: (0, 0),
        owners: Owners::OfHost,
        is_exclusive: is_still,
        is_written_back: false,
        without_attributes: true,
        // The kernel's package may have been fetched again.
        may_be_another: true,
        is_nine: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_goes_on_without_modules_where_there_are_none() {
        let gone = PathBuf::from("/nowhere/lib/modules");
        for path in [None, Some(gone)] {
            let modules = Modules::again(path).unwrap();
            assert_eq!(modules.kind, Kind::Modules);
            let below =
                rustix::fs::openat(&modules.share.directory, "6.1", OFlags::RDONLY, Mode::empty());
            assert!(below.is_err());
        }
        assert!(Modules::choose(None, Some(("/nowhere".into(), "6.1"))).unwrap().is_none());
        assert!(Modules::choose(None, None).unwrap().is_none());
    }
}

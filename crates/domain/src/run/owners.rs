//! Whom the files of a directory belong to in the guest.
//!
//! Mostly they belong to whom they belong to on the host, but that whoever starts the machine is the guest's superuser.
//! With `owners`, what the guest makes of them is kept:
//!
//! 1. Root gives files to anybody, so nothing changes.
//! 2. A user with subordinate users (subuid(5)) has a namespace of these. He is its superuser, as in podman's
//!    containers; in a directory of the first subordinate user's, as mmdebstrap(1) makes, that user is. As a root such
//!    a directory is of no use without, and has it unasked.
//! 3. Another user's files have attributes that say so ([`files::owner`]).

use std::os::fd::OwnedFd;
use std::path::Path;

use files::Owners;
use host::subordinate::{Namespace, SubordinateIds, Superuser};
use rustix::fs::fstat;
use rustix::process::geteuid;

use super::error::Error;

/// Whose the files of the directory at `path` are, whether the user wants to have them belong to many or not.
pub fn of(directory: &OwnedFd, is_wanted: bool, path: &Path) -> Result<Owners, Error> {
    let failed = |error: rustix::io::Errno| Error::Open { path: path.into(), error: error.into() };
    let (caller, top) = (geteuid(), fstat(directory).map_err(failed)?.st_uid);
    let is_anothers = top != caller.as_raw() && top != 0;
    if caller.is_root() || !(is_wanted || is_anothers) {
        return Ok(Owners::OfHost);
    }
    let of = |ids, superuser| Owners::OfNamespace(Namespace { ids, superuser });
    Ok(match SubordinateIds::of_process() {
        Some(ids) if ids.first_user() == top => of(ids, Superuser::FirstOfRange),
        Some(ids) if is_wanted => of(ids, Superuser::Caller),
        None if is_wanted => Owners::Recorded,
        Some(_) | None => Owners::OfHost,
    })
}

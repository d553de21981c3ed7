//! The description from which a domain that has ended is started again (`biv start`).
//!
//! Its record has a description, too, but the domain's process keeps that file open to write how it ended: a guest that
//! owns the process could have it say anything, such as that its user's home directory is to be mounted next time. This
//! file is written and closed before the process is confined, and read by nobody until the domain has ended, like the
//! origin of a snapshot ([`super::origin`]).

use std::io;
use std::os::fd::AsFd;

use spec::Spec;

use super::files;

/// The longest description that is read, in bytes.
const SPEC_MAX_BYTES: u64 = 4 << 20;

/// Writes it into a domain's directory, in the place of an earlier one.
///
/// # Errors
///
/// The host's.
pub fn record(directory: impl AsFd, spec: &Spec) -> io::Result<()> {
    files::replace(directory, files::SPEC, spec.to_json().as_bytes())
}

/// What was written into a domain's directory.
///
/// # Errors
///
/// There is nothing ([`io::ErrorKind::NotFound`]): it went on from a snapshot; or it is no description.
pub fn of_domain(directory: impl AsFd) -> io::Result<Spec> {
    Spec::parse(&files::read(directory, files::SPEC, SPEC_MAX_BYTES)?).map_err(io::Error::other)
}

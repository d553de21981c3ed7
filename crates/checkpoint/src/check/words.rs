//! What is asked of everything.

use crate::error::Error;
use crate::limits::MAX_NAME_BYTES;

/// Refuse the image for `what` unless something holds.
pub(crate) fn require(holds: bool, what: &str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::Image(what.to_owned())) }
}

/// Whether it may be an absolute path.
pub(super) fn is_path(path: &str) -> bool {
    path.starts_with('/') && is_name(path)
}

/// Whether it may be a name of anything.
pub(super) fn is_name(name: &str) -> bool {
    name.len() < MAX_NAME_BYTES && !name.contains('\0')
}

//! A descriptor as it was found.

use crate::proc::descriptor::Line;

/// A descriptor of a process.
pub(super) struct Found {
    /// The host's number.
    pub pid: u32,
    /// Its own.
    pub own: u32,
    pub line: Line,
}

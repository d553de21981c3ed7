//! Where the pages go that a dump finds.

use std::io;

use crate::state::Owner;

/// Who takes the pages, in the order in which they are found.
pub trait Pages {
    /// These bytes, whole pages, are at `address`.
    ///
    /// # Errors
    ///
    /// Where they cannot be kept.
    fn put(&mut self, owner: Owner, address: u64, bytes: &[u8]) -> io::Result<()>;
}

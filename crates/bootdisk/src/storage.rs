//! Where the bytes of a disk come from.

use std::io;

/// A disk's bytes.
pub trait Storage {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// Fills `into` with what is from `at` on.
    ///
    /// # Errors
    ///
    /// The host's, or that there are fewer bytes.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
}

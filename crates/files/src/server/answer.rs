//! The answer to a request.

use rustix::io::Errno;
use zerocopy::IntoBytes;

/// What an answer consists of.
pub enum Answer {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Bytes that are in guest memory already.
    InPlace(usize),
    /// No answer.
    Nothing,
}

impl Answer {
    /// A structure.
    pub fn of<T: IntoBytes + zerocopy::Immutable>(value: &T) -> Result<Self, Errno> {
        Ok(Self::Bytes(value.as_bytes().to_vec()))
    }

    /// Success, of which there is nothing to say.
    pub fn done() -> Result<Self, Errno> {
        Ok(Self::Bytes(Vec::new()))
    }
}

//! The identity of a file system: the UUID in its super block.

use std::fs::File;
use std::io;

use crate::format::{BLOCK_BYTES, MAGIC, SUPER_OFFSET};

/// Which file system it is: two with the same contents have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// That of the file system in `file`; none if there is none.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn read(file: &File) -> io::Result<Option<Identity>> {
        use std::os::unix::fs::FileExt;
        let mut block = [0; BLOCK_BYTES];
        match file.read_exact_at(&mut block, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
        let (magic, uuid) = (&block[SUPER_OFFSET..][..4], &block[SUPER_OFFSET + 48..][..16]);
        let is_ours = magic == MAGIC.to_le_bytes();
        Ok(uuid.try_into().ok().filter(|_| is_ours).map(Identity))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

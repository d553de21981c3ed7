//! The last bytes of a stream, for clients that come later.

use std::collections::VecDeque;

/// How much is kept.
pub const KEPT_MAX_BYTES: usize = 16 << 10;

/// The last [`KEPT_MAX_BYTES`].
#[derive(Debug, Clone, Default)]
pub struct Recent {
    kept: VecDeque<u8>,
}

impl Recent {
    /// More was written.
    pub fn add(&mut self, bytes: &[u8]) {
        self.kept.extend(&bytes[bytes.len().saturating_sub(KEPT_MAX_BYTES)..]);
        let too_many = self.kept.len().saturating_sub(KEPT_MAX_BYTES);
        self.kept.drain(..too_many);
    }

    /// What is kept, oldest first.
    pub fn bytes(&mut self) -> &[u8] {
        self.kept.make_contiguous()
    }
}

//! The numbers of the file's layout.

/// How a file begins.
pub(super) const MAGIC: [u8; 7] = *b"BIVPOD\n";
pub(super) const MAJOR: u8 = 2;
/// The version before had neither parents nor parts of pieces.
pub(super) const OLDEST_MAJOR: u8 = 1;
pub(super) const MINOR: u32 = 0;
/// Where the pieces begin.
pub(super) const PIECES_OFFSET: u64 = 4096;
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 48;

//! An image that comes as a stream.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::layout::{HEADER_BYTES, PIECES_OFFSET};

/// Bytes of room that [`from_stream`] wants before what the stream brings.
pub const STREAM_OFFSET: u64 = PIECES_OFFSET;

/// Make an image of what a stream brought: `file` has [`STREAM_OFFSET`] bytes of room and then all of it. The header,
/// which came last, goes to its place.
///
/// # Errors
///
/// It is too short, or the file cannot be written.
pub fn from_stream(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let end = length.checked_sub(HEADER_BYTES as u64).filter(|end| *end >= PIECES_OFFSET);
    let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, end)?;
    file.set_len(end)?;
    file.write_all_at(&header, 0)
}

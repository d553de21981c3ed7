//! The legacy frame of LZ4 (LZ4 Frame Format Description, "Legacy frame"): a magic number, then
//! blocks of up to 8 MiB, each preceded by its compressed size. There is no end mark and no
//! checksum; frames may follow one another.

use std::io;

use super::super::bytes::u32_at;
use super::{damaged, with_room};

const MAGIC: u32 = 0x184c_2102;
const BLOCK_BYTES: usize = 8 << 20;

/// Unpack all frames; an error if they hold more than `limit` bytes.
pub fn unpack(stream: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    let mut unpacked = with_room(limit)?;
    let limit = usize::try_from(limit).map_err(io::Error::other)?;
    let mut rest = stream;
    while let Some(word) = u32_at(rest, 0) {
        rest = &rest[4..];
        if word == MAGIC {
            continue;
        }
        let size = usize::try_from(word).map_err(io::Error::other)?;
        let block = rest.get(..size).ok_or(damaged("a block reaches beyond the end"))?;
        rest = &rest[size..];
        let start = unpacked.len();
        unpacked.resize(limit.min(start + BLOCK_BYTES), 0);
        let written = lz4_flex::block::decompress_into(block, &mut unpacked[start..])
            .map_err(|_| damaged("a block is damaged"))?;
        unpacked.truncate(start + written);
    }
    if rest.is_empty() { Ok(unpacked) } else { Err(damaged("bytes are left at the end")) }
}

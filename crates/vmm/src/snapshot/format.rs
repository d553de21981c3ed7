//! The bytes of a snapshot that are not memory: see docs/snapshots.md. All numbers are little-endian.

use host::backing::CHUNK_BYTES;

use super::Error;

/// The first bytes.
const MAGIC: [u8; 8] = *b"BIVSNAP\n";

/// The version of the format and of all that is in it.
pub const VERSION: u32 = 1;

/// Bytes of the header; memory starts after it.
pub(super) const HEADER_BYTES: usize = 4096;

/// What of these is used, with the checksum.
const USED_BYTES: usize = 8 + 4 + 4 + 8 * 6 + 4 + 4;

/// Bytes of an entry of the table.
pub(super) const ENTRY_BYTES: usize = 16;

/// The most that state and note may have, in bytes: far more than any has.
pub(super) const MAX_STATE_BYTES: u64 = 64 << 20;

/// The most chunks, which is a memory of 16 TiB.
const MAX_CHUNKS: u64 = 1 << 28;

/// Where everything is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Entries of the table: chunks of the memory's file.
    pub chunks: u64,
    /// Bytes of the memory's file that are the guest's.
    pub memory: u64,
    /// Where the table starts; state and note follow it.
    pub table: u64,
    pub state: u64,
    pub note: u64,
    /// Bytes of the whole.
    pub file: u64,
    /// CRC-32 of table, state and note.
    pub checksum: u32,
}

impl Header {
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((CHUNK_BYTES as u32).to_le_bytes());
        for number in [self.chunks, self.memory, self.table, self.state, self.note, self.file] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.checksum.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        debug_assert_eq!(bytes.len(), USED_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        bytes
    }

    /// The header of a file of `length` bytes.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES], length: u64) -> Result<Self, Error> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        if bytes[..8] != MAGIC {
            return Err(Error::Foreign);
        }
        if word(8) != VERSION {
            return Err(Error::Version { found: word(8) });
        }
        if word(USED_BYTES - 4) != crc32fast::hash(&bytes[..USED_BYTES - 4]) {
            return Err(Error::Damaged("its header has changed"));
        }
        let [chunks, memory, table, state, note, file] =
            std::array::from_fn(|number| long(16 + 8 * number));
        let header = Self { chunks, memory, table, state, note, file, checksum: word(64) };
        if length < file {
            return Err(Error::Damaged("its end is missing"));
        }
        header.makes_sense(word(12)).then_some(header).ok_or(Error::Damaged("its header is wrong"))
    }

    fn makes_sense(&self, chunk_bytes: u32) -> bool {
        let parts = [self.chunks.saturating_mul(ENTRY_BYTES as u64), self.state, self.note];
        let end = parts.iter().fold(self.table, |at, part| at.saturating_add(*part));
        u64::from(chunk_bytes) == CHUNK_BYTES
            && self.chunks <= MAX_CHUNKS
            && self.chunks == self.memory.div_ceil(CHUNK_BYTES)
            && self.table >= HEADER_BYTES as u64
            && self.state.max(self.note) <= MAX_STATE_BYTES
            && end == self.file
    }
}

/// A chunk of memory in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry {
    /// Where it is; zero if it is all zeroes, and nowhere.
    pub at: u64,
    /// Bytes there: as many as the chunk has, or fewer if it is compressed (Zstandard, RFC 8878).
    pub stored: u32,
    /// CRC-32 of these.
    pub checksum: u32,
}

impl Entry {
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.stored.to_le_bytes());
        bytes[12..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// The entry of a chunk, in a file whose table starts at `table`.
    pub fn from_bytes(bytes: &[u8], table: u64) -> Result<Self, Error> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let at = u64::from_le_bytes(std::array::from_fn(|n| bytes[n]));
        let entry = Self { at, stored: word(8), checksum: word(12) };
        let end = at.saturating_add(entry.stored.into());
        let is_there = at >= HEADER_BYTES as u64 && end <= table && entry.stored > 0;
        let fits = u64::from(entry.stored) <= CHUNK_BYTES;
        match entry == Self::default() || is_there && fits {
            true => Ok(entry),
            false => Err(Error::Damaged("its table of memory is wrong")),
        }
    }
}

//! The bytes of a snapshot that are not memory: see docs/snapshots.md. All numbers are little-endian.

use host::backing::CHUNK_BYTES;

use super::Error;

/// The first bytes.
const MAGIC: [u8; 8] = *b"BIVSNAP\n";

/// The version of the format: what a device's state looks like has a version of its own ([`machine::saved::Parts`]).
pub const VERSION: u32 = 5;

/// Bytes of the header; memory starts after it.
pub(super) const HEADER_BYTES: usize = 4096;

/// What of these is used, with the checksum.
const USED_BYTES: usize = 8 + 4 + 4 + 8 * 7 + 4 + 4;

/// Bytes of an entry of the table.
pub(super) const ENTRY_BYTES: usize = 32;

/// Bytes of the digest of a chunk: no other chunk with the same can be found.
const CHUNK_DIGEST_BYTES: usize = 16;

/// The most that state, note and label may have each, in bytes: far more than any has.
pub(super) const MAX_STATE_BYTES: u64 = 64 << 20;

/// The most chunks, which is a memory of 1 TiB: their table is read at once.
pub(super) const MAX_CHUNKS: u64 = 1 << 25;

/// Tells this digest from any other that is made of the same bytes.
const DIGEST_CONTEXT: &str = "bivouac snapshot format 2: table, state and note";

/// What a snapshot is, in 32 bytes: the machine's state and the digests of its memory's chunks (BLAKE3). Nobody
/// makes another with the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

/// Where everything is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Entries of the table: chunks of the memory's file.
    pub chunks: u64,
    /// Bytes of the memory's file that are the guest's.
    pub memory: u64,
    /// Where the table starts; state, note and label follow it.
    pub table: u64,
    pub state: u64,
    pub note: u64,
    /// Bytes of the label, which is added later, if ever.
    pub label: u64,
    /// Bytes of the whole.
    pub file: u64,
    /// CRC-32 of table, state, note and label.
    pub checksum: u32,
}

impl Header {
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((CHUNK_BYTES as u32).to_le_bytes());
        for number in self.numbers() {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.checksum.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        debug_assert_eq!(bytes.len(), USED_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        bytes
    }

    /// The numbers, in their order in the file.
    fn numbers(&self) -> [u64; 7] {
        let Self { chunks, memory, table, state, note, label, file, .. } = *self;
        [chunks, memory, table, state, note, label, file]
    }

    /// Bytes of what follows the memory.
    pub fn rest_bytes(&self) -> u64 {
        self.file - self.table
    }

    /// The digest of all that the machine is: `rest` is what follows the memory, whose table has the digest of
    /// each chunk. The label is not part of it.
    pub fn digest(&self, rest: &[u8]) -> Digest {
        let mut hasher = blake3::Hasher::new_derive_key(DIGEST_CONTEXT);
        for number in [self.chunks, self.memory, self.table, self.state, self.note] {
            hasher.update(&number.to_le_bytes());
        }
        let label = usize::try_from(self.label).unwrap_or(usize::MAX);
        hasher.update(&rest[..rest.len().saturating_sub(label)]);
        Digest(*hasher.finalize().as_bytes())
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
        let [chunks, memory, table, state, note, label, file] =
            std::array::from_fn(|number| long(16 + 8 * number));
        let checksum = word(USED_BYTES - 8);
        let header = Self { chunks, memory, table, state, note, label, file, checksum };
        if length < file {
            return Err(Error::Damaged("its end is missing"));
        }
        header.makes_sense(word(12)).then_some(header).ok_or(Error::Damaged("its header is wrong"))
    }

    fn makes_sense(&self, chunk_bytes: u32) -> bool {
        let table = self.chunks.saturating_mul(ENTRY_BYTES as u64);
        let parts = [table, self.state, self.note, self.label];
        let end = parts.iter().fold(self.table, |at, part| at.saturating_add(*part));
        u64::from(chunk_bytes) == CHUNK_BYTES
            && self.chunks <= MAX_CHUNKS
            && self.chunks == self.memory.div_ceil(CHUNK_BYTES)
            && self.table >= HEADER_BYTES as u64
            && self.state.max(self.note).max(self.label) <= MAX_STATE_BYTES
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
    /// The first bytes of the BLAKE3 digest of these.
    pub digest: [u8; CHUNK_DIGEST_BYTES],
}

impl Entry {
    /// The entry of a chunk that is stored as these bytes.
    pub fn of(at: u64, stored: &[u8]) -> Self {
        Self { at, stored: stored.len() as u32, digest: digest_of(stored) }
    }

    /// Whether these are the bytes that were stored.
    pub fn is_of(&self, stored: &[u8]) -> bool {
        self.stored as usize == stored.len() && self.digest == digest_of(stored)
    }

    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.stored.to_le_bytes());
        bytes[16..].copy_from_slice(&self.digest);
        bytes
    }

    /// The entry of a chunk, in a file whose table starts at `table`.
    pub fn from_bytes(bytes: &[u8], table: u64) -> Result<Self, Error> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let at = u64::from_le_bytes(std::array::from_fn(|n| bytes[n]));
        let entry = Self { at, stored: word(8), digest: std::array::from_fn(|n| bytes[16 + n]) };
        let end = at.saturating_add(entry.stored.into());
        let is_there = at >= HEADER_BYTES as u64 && end <= table && entry.stored > 0;
        let fits = u64::from(entry.stored) <= CHUNK_BYTES;
        let is_plain = word(12) == 0;
        match is_plain && (entry == Self::default() || is_there && fits) {
            true => Ok(entry),
            false => Err(Error::Damaged("its table of memory is wrong")),
        }
    }
}

fn digest_of(stored: &[u8]) -> [u8; CHUNK_DIGEST_BYTES] {
    let digest = blake3::hash(stored);
    std::array::from_fn(|n| digest.as_bytes()[n])
}

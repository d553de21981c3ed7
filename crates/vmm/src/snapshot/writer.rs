//! Snapshots that are written.
//!
//! What was copied of memory ([`super::draft`]) is looked at while the guest runs: what is zero is left out,
//! digests are computed, and what is to be compressed is compressed, from a copy in memory into the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use host::backing::CHUNK_BYTES;
use rustix::fs::FallocateFlags;

use super::draft::offset;
use super::format::{Entry, HEADER_BYTES, Header};
use super::{Draft, Error, State, Written};

/// The level at which a chunk is compressed: fast, and half of what memory usually is.
const LEVEL: i32 = 1;

/// What a chunk of nothing looks like.
static ZEROES: [u8; CHUNK_BYTES as usize] = [0; CHUNK_BYTES as usize];

/// A snapshot of one moment, which is still to be written.
#[derive(Debug)]
pub struct Taken {
    pub(crate) draft: Draft,
    pub(crate) state: State,
    pub(crate) note: Vec<u8>,
    /// For how long the machine stood still.
    pub(crate) paused: Duration,
}

impl Taken {
    /// Write it, while the machine runs.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot; what has been written is no snapshot then.
    pub fn write(&self) -> Result<Written, Error> {
        let Draft { memory, file, staging, places, free } = &self.draft;
        let all = memory.file_bytes();
        let mut table = vec![Entry::default(); all.div_ceil(CHUNK_BYTES) as usize];
        let mut bytes = vec![0; CHUNK_BYTES as usize];
        let (mut kept, mut end) = (0, HEADER_BYTES as u64);
        for (&chunk, &place) in places {
            let left = all - chunk as u64 * CHUNK_BYTES;
            let bytes = &mut bytes[..CHUNK_BYTES.min(left) as usize];
            let at = offset(place);
            staging.as_ref().unwrap_or(file).read_exact_at(bytes, at)?;
            if bytes == &ZEROES[..bytes.len()] {
                self.leave_out(at);
                continue;
            }
            kept += bytes.len() as u64;
            table[chunk] = match staging {
                None => Entry::of(at, bytes),
                Some(_) => compress(file, end, bytes)?,
            };
            end = end.max(table[chunk].at + u64::from(table[chunk].stored));
        }
        free.iter().for_each(|&place| self.leave_out(offset(place)));
        let written = self.write_rest(end, &table)?;
        Ok(Written { paused: self.paused, memory: kept, file: written })
    }

    /// There are only zeroes: they need no room. Where that cannot be, they have some.
    fn leave_out(&self, at: u64) {
        if self.draft.staging.is_none() {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&self.draft.file, mode, at, CHUNK_BYTES);
        }
    }

    /// What comes after the memory, and before it; the bytes of the whole.
    fn write_rest(&self, end: u64, table: &[Entry]) -> Result<u64, Error> {
        let Self { draft: Draft { memory, file, .. }, state, note, .. } = self;
        let state = state.to_bytes();
        let mut rest: Vec<u8> = table.iter().flat_map(|entry| entry.to_bytes()).collect();
        rest.extend(&state);
        rest.extend(note);
        let header = Header {
            chunks: table.len() as u64,
            memory: memory.file_bytes(),
            table: end,
            state: state.len() as u64,
            note: note.len() as u64,
            label: 0,
            file: end + rest.len() as u64,
            checksum: crc32fast::hash(&rest),
        };
        file.write_all_at(&rest, end)?;
        file.set_len(header.file)?;
        // What the header speaks of is there before it.
        file.write_all_at(&header.to_bytes(), 0)?;
        Ok(header.file)
    }
}

fn compress(file: &File, end: u64, bytes: &[u8]) -> io::Result<Entry> {
    let compressed = zstd::bulk::compress(bytes, LEVEL)?;
    let stored = if compressed.len() < bytes.len() { &compressed } else { bytes };
    file.write_all_at(stored, end)?;
    Ok(Entry::of(end, stored))
}

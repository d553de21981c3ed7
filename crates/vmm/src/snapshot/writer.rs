//! Snapshots that are written.
//!
//! The machine stands still while its memory is copied, and for nothing else: the copy goes into the page
//! cache of the host as it is, by several threads. Afterwards, while the guest runs, the copy is looked at:
//! what is zero is left out, checksums are computed, and what is to be compressed is compressed, from a
//! copy in memory into the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;

use host::GuestMemory;
use host::backing::CHUNK_BYTES;
use rustix::fs::{FallocateFlags, MemfdFlags};

use super::format::{Entry, HEADER_BYTES, Header};
use super::{Error, State, Written};

/// The level at which a chunk is compressed: fast, and half of what memory usually is.
const LEVEL: i32 = 1;

/// Threads that copy, at most: what memory can be moved at.
const THREADS_MAX: usize = 4;

/// Chunks that are copied at once, if they follow each other: 1 MiB. The more at once, the less a page costs
/// the host.
const PIECE_CHUNKS: usize = (1 << 20) / CHUNK_BYTES as usize;

/// What a chunk of nothing looks like.
static ZEROES: [u8; CHUNK_BYTES as usize] = [0; CHUNK_BYTES as usize];

/// How memory is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As it is: machines share what is in the host's page cache.
    #[default]
    None,
    /// With Zstandard, for files that are kept or sent.
    Zstandard,
}

/// A copy of a machine's memory, chunk after chunk.
pub(crate) struct Copied<'a> {
    /// What is to be written.
    file: &'a File,
    /// Where the copy is, if not there.
    staging: Option<File>,
    /// The chunks that there are, in order: the first is at [`HEADER_BYTES`].
    chunks: Vec<usize>,
    /// Bytes of the memory's file.
    memory: u64,
}

/// Where the chunk that comes at `place` in a copy is.
fn offset(place: usize) -> u64 {
    HEADER_BYTES as u64 + place as u64 * CHUNK_BYTES
}

impl<'a> Copied<'a> {
    /// Copy the memory of a machine that stands still, for an empty file.
    pub fn of(
        memory: &GuestMemory,
        file: &'a File,
        compression: Compression,
    ) -> Result<Self, Error> {
        let staging = match compression {
            Compression::None => None,
            Compression::Zstandard => {
                Some(rustix::fs::memfd_create("bivouac-snapshot", MemfdFlags::CLOEXEC)?.into())
            }
        };
        let chunks = memory.chunks()?;
        let target = staging.as_ref().unwrap_or(file);
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let share = chunks.len().div_ceil(threads).max(1);
        thread::scope(|scope| {
            let copy = |(number, part): (usize, &[usize])| {
                let mut place = number * share;
                for run in part.chunk_by(|one, next| one + 1 == *next) {
                    for piece in run.chunks(PIECE_CHUNKS) {
                        let chunks = piece[0]..piece[0] + piece.len();
                        memory.copy_chunks(chunks, target, offset(place))?;
                        place += piece.len();
                    }
                }
                Ok::<_, Error>(())
            };
            let mut parts = chunks.chunks(share).enumerate();
            let first = parts.next();
            // A thread that cannot be had leaves its part to us.
            let others: Vec<_> = parts
                .map(|part| {
                    let started = thread::Builder::new().spawn_scoped(scope, move || copy(part));
                    (part, started)
                })
                .collect();
            first.map_or(Ok(()), copy)?;
            for (part, started) in others {
                match started {
                    Ok(thread) => thread.join().unwrap_or_else(|_| copy(part))?,
                    Err(_) => copy(part)?,
                }
            }
            Ok::<_, Error>(())
        })?;
        Ok(Self { file, staging, chunks, memory: memory.file_bytes() })
    }

    /// Make a snapshot of it.
    pub fn finish(self, state: &State, note: &[u8]) -> Result<Written, Error> {
        let mut table = vec![Entry::default(); self.memory.div_ceil(CHUNK_BYTES) as usize];
        let mut bytes = vec![0; CHUNK_BYTES as usize];
        let (mut memory, mut end) = (0, HEADER_BYTES as u64);
        for (place, &chunk) in self.chunks.iter().enumerate() {
            let left = self.memory - chunk as u64 * CHUNK_BYTES;
            let bytes = &mut bytes[..CHUNK_BYTES.min(left) as usize];
            let at = offset(place);
            self.staging.as_ref().unwrap_or(self.file).read_exact_at(bytes, at)?;
            if bytes == &ZEROES[..bytes.len()] {
                self.leave_out(at, bytes.len());
                continue;
            }
            memory += bytes.len() as u64;
            table[chunk] = match self.staging {
                None => entry(at, bytes),
                Some(_) => self.compress(end, bytes)?,
            };
            end = table[chunk].at + u64::from(table[chunk].stored);
        }
        let file = self.write_rest(end, &table, state, note)?;
        Ok(Written { memory, file, ..Written::default() })
    }

    /// There are only zeroes: they need no room. Where that cannot be, they have some.
    fn leave_out(&self, at: u64, length: usize) {
        if self.staging.is_none() {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(self.file, mode, at, length as u64);
        }
    }

    fn compress(&self, end: u64, bytes: &[u8]) -> io::Result<Entry> {
        let compressed = zstd::bulk::compress(bytes, LEVEL)?;
        let stored = if compressed.len() < bytes.len() { &compressed } else { bytes };
        self.file.write_all_at(stored, end)?;
        Ok(entry(end, stored))
    }

    /// What comes after the memory, and before it; the bytes of the whole.
    fn write_rest(
        &self,
        end: u64,
        table: &[Entry],
        state: &State,
        note: &[u8],
    ) -> Result<u64, Error> {
        let state = state.to_bytes();
        let mut rest: Vec<u8> = table.iter().flat_map(|entry| entry.to_bytes()).collect();
        rest.extend(&state);
        rest.extend(note);
        let header = Header {
            chunks: table.len() as u64,
            memory: self.memory,
            table: end,
            state: state.len() as u64,
            note: note.len() as u64,
            file: end + rest.len() as u64,
            checksum: crc32fast::hash(&rest),
        };
        self.file.write_all_at(&rest, end)?;
        self.file.set_len(header.file)?;
        // What the header speaks of is there before it.
        self.file.write_all_at(&header.to_bytes(), 0)?;
        Ok(header.file)
    }
}

fn entry(at: u64, stored: &[u8]) -> Entry {
    Entry { at, stored: stored.len() as u32, checksum: crc32fast::hash(stored) }
}

//! The copy of a machine's memory, made such that the machine is paused as briefly as possible:
//!
//! 1. *Copied while the machine runs.* Several threads copy memory to the host's page cache as it is, while the guest
//!    changes it ([`Draft::follow`]).
//! 2. *Compared while the machine is paused.* Each chunk of memory is read beside its copy, and copied again where they
//!    differ ([`Draft::catch_up`]). No dirty log is needed: vCPUs, helper processes and devices need not record their
//!    writes, which would cost time and could be forgotten somewhere. The copy is of one moment because all of it was
//!    compared in that moment. To read a page costs a tenth of what a new page of the page cache costs.
//!
//! [`super::writer`] turns the copy into a file afterwards, while the guest runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use host::GuestMemory;
use host::backing::CHUNK_BYTES;
use rustix::fs::MemfdFlags;

use super::format::{HEADER_BYTES, MAX_CHUNKS};
use super::{Compression, Error};

/// Threads that copy, at most: what memory can be moved at.
const THREADS_MAX: usize = 4;

/// Chunks that are copied at once, if they follow each other: 1 MiB. The more at once, the less a page costs
/// the host.
const PIECE_CHUNKS: usize = (1 << 20) / CHUNK_BYTES as usize;

/// So much is left for the moment in which the machine stands still without another attempt to have less.
const LITTLE_BYTES: u64 = 16 << 20;

/// How often a draft is brought up to date while the machine runs, at most.
const ROUNDS_MAX: usize = 5;

/// A copy of a machine's memory that may be behind it.
#[derive(Debug)]
pub struct Draft {
    /// What is copied.
    pub(super) memory: GuestMemory,
    /// What is to be written.
    pub(super) file: File,
    /// Where the copy is, if not there.
    pub(super) staging: Option<File>,
    /// The place of each chunk that has one.
    pub(super) places: BTreeMap<usize, u64>,
    /// Places of chunks that are not there any more.
    pub(super) free: Vec<u64>,
}

/// Where a place is in the file.
pub(super) fn offset(place: u64) -> u64 {
    HEADER_BYTES as u64 + place * CHUNK_BYTES
}

/// A chunk to be seen to.
#[derive(Clone, Copy)]
struct Task {
    chunk: usize,
    place: u64,
    /// There is an older copy of it in its place.
    has_copy: bool,
}

impl Task {
    /// Whether both are copied for the first time, and follow each other in memory and in the copy.
    fn goes_with(&self, next: &Task) -> bool {
        let is_first = !self.has_copy && !next.has_copy;
        is_first && self.chunk + 1 == next.chunk && self.place + 1 == next.place
    }
}

impl Draft {
    /// A draft without anything, for an empty file.
    pub(crate) fn new(
        memory: &GuestMemory,
        file: File,
        compression: Compression,
    ) -> Result<Self, Error> {
        if memory.file_bytes().div_ceil(CHUNK_BYTES) > MAX_CHUNKS {
            return Err(Error::TooLarge);
        }
        let staging = match compression {
            Compression::None => None,
            Compression::Zstandard => {
                Some(rustix::fs::memfd_create("bivouac-snapshot", MemfdFlags::CLOEXEC)?.into())
            }
        };
        let memory = memory.clone();
        Ok(Self { memory, file, staging, places: BTreeMap::new(), free: Vec::new() })
    }

    /// Copy memory while the machine runs, until what it has changed meanwhile is little, or does not get
    /// less.
    ///
    /// # Errors
    ///
    /// [`Error`] when it cannot be read or written.
    pub fn follow(&mut self) -> Result<(), Error> {
        let mut before = self.catch_up()?;
        for _ in 1..ROUNDS_MAX {
            if before <= LITTLE_BYTES {
                break;
            }
            let copied = self.catch_up()?;
            if copied > before / 2 {
                break;
            }
            before = copied;
        }
        Ok(())
    }

    /// Copy what is not yet as it is in memory; how many bytes. Of a machine that stands still, this is a
    /// copy of its memory afterwards.
    pub(crate) fn catch_up(&mut self) -> Result<u64, Error> {
        let tasks = self.tasks()?;
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let share = tasks.len().div_ceil(threads).max(1);
        let copied = AtomicU64::new(0);
        let work = |part: &[Task]| {
            copied.fetch_add(self.perform(part)?, Ordering::Relaxed);
            Ok::<_, Error>(())
        };
        thread::scope(|scope| {
            let mut parts = tasks.chunks(share);
            let first = parts.next();
            // A thread that cannot be had leaves its part to us.
            let others: Vec<_> = parts
                .map(|part| {
                    let work = &work;
                    (part, thread::Builder::new().spawn_scoped(scope, move || work(part)))
                })
                .collect();
            first.map_or(Ok(()), work)?;
            for (part, started) in others {
                match started {
                    Ok(thread) => thread.join().unwrap_or_else(|_| work(part))?,
                    Err(_) => work(part)?,
                }
            }
            Ok::<_, Error>(())
        })?;
        Ok(copied.into_inner())
    }

    /// What there is to be done. Chunks that have come have places afterwards, those that have gone have none.
    fn tasks(&mut self) -> Result<Vec<Task>, Error> {
        let chunks = self.memory.chunks()?;
        let mut known = std::mem::take(&mut self.places);
        let mut next = (known.len() + self.free.len()) as u64;
        let mut tasks = Vec::with_capacity(chunks.len());
        let mut fresh = Vec::new();
        for chunk in chunks {
            match known.remove(&chunk) {
                Some(place) => {
                    self.places.insert(chunk, place);
                    tasks.push(Task { chunk, place, has_copy: true });
                }
                None => fresh.push(chunk),
            }
        }
        self.free.extend(known.into_values());
        for chunk in fresh {
            let place = self.free.pop().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            self.places.insert(chunk, place);
            tasks.push(Task { chunk, place, has_copy: false });
        }
        Ok(tasks)
    }

    /// Do a part of it; bytes that were copied.
    fn perform(&self, tasks: &[Task]) -> Result<u64, Error> {
        let target = self.staging.as_ref().unwrap_or(&self.file);
        let mut buffers = [(); 2].map(|()| vec![0; CHUNK_BYTES as usize]);
        let mut copied = 0;
        for run in tasks.chunk_by(Task::goes_with) {
            for piece in run.chunks(PIECE_CHUNKS) {
                let Task { chunk, place, has_copy } = piece[0];
                if has_copy {
                    copied += self.refresh(chunk, offset(place), target, &mut buffers)?;
                } else {
                    let chunks = chunk..chunk + piece.len();
                    self.memory.copy_chunks(chunks, target, offset(place))?;
                    copied += piece.len() as u64 * CHUNK_BYTES;
                }
            }
        }
        Ok(copied)
    }

    /// Copy a chunk again if it has changed; bytes that were copied.
    fn refresh(
        &self,
        chunk: usize,
        at: u64,
        target: &File,
        [memory, copy]: &mut [Vec<u8>; 2],
    ) -> Result<u64, Error> {
        if self.memory.is_chunk_absent(chunk) {
            // What is fetched once is never absent again: it was not there for the copy either.
            return Ok(0);
        }
        let length = self.memory.read_chunk(chunk, memory)?;
        let (memory, copy) = (&memory[..length], &mut copy[..length]);
        target.read_exact_at(copy, at)?;
        if memory == copy {
            return Ok(0);
        }
        target.write_all_at(memory, at)?;
        Ok(length as u64)
    }
}

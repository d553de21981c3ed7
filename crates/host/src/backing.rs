//! Guest memory that is somewhere else until it is touched: in a snapshot, for one.
//!
//! Such memory starts as a file without pages, as all guest memory does, and a [`Source`] of its
//! contents. It is fetched by the chunk, when a thread is about to read or write a byte of it:
//!
//! 1. *No thread reads what has not been fetched.* There is no fault that would tell: the file
//!    reads as zeroes. So every way to guest memory fetches first
//!    ([`super::GuestMemory::require`]). There are few: where the processor turns a physical
//!    address into a host address, where a device does, and where pages are mapped into another
//!    process.
//! 2. *A chunk is fetched once.* The thread that fetches holds the lock, and does not overwrite a
//!    chunk that is there; what the guest has written since is safe.
//! 3. *A source that fails ends the machine.* The guest must not go on with zeroes, which it would
//!    write to its disks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use locks::Unpoisoned;

pub use crate::limits::CHUNK_BYTES;

/// Where memory comes from.
pub trait Source: Send + Sync {
    /// Whether the chunk of this number, of those of the memory's file, is anything but zeroes.
    fn has(&self, chunk: usize) -> bool;

    /// Fill `bytes`, a chunk or what the file has of the last one, with what belongs there.
    ///
    /// # Errors
    ///
    /// What keeps it.
    fn fetch(&self, chunk: usize, bytes: &mut [u8]) -> io::Result<()>;

    /// What cannot be had is needed: the guest cannot go on, and nobody can return to it.
    fn give_up(&self, error: &io::Error) -> !;
}

/// What has been fetched of a memory's file, and how to get the rest.
pub(crate) struct Backing {
    source: Box<dyn Source>,
    file: Arc<File>,
    /// Bytes of the file that are the guest's.
    length: u64,
    absent: Box<[AtomicBool]>,
    /// How many are absent.
    left: AtomicUsize,
    /// Held by who fetches; a chunk in between.
    fetching: Mutex<Vec<u8>>,
}

impl Backing {
    pub(crate) fn new(source: Box<dyn Source>, file: &Arc<File>, length: u64) -> Self {
        let chunks = 0..length.div_ceil(CHUNK_BYTES) as usize;
        let absent: Box<[_]> = chunks.map(|chunk| AtomicBool::new(source.has(chunk))).collect();
        let left = absent.iter().filter(|absent| absent.load(Ordering::Relaxed)).count();
        Self {
            source,
            file: Arc::clone(file),
            length,
            absent,
            left: AtomicUsize::new(left),
            fetching: Mutex::new(vec![0; CHUNK_BYTES as usize]),
        }
    }

    /// Whether something of these bytes of the file has not been fetched.
    pub(crate) fn is_absent(&self, offset: u64, length: u64) -> bool {
        self.left.load(Ordering::Acquire) != 0
            && self.chunks(offset, length).any(|chunk| self.absent[chunk].load(Ordering::Acquire))
    }

    /// Fetch what has not been fetched of these bytes of the file; whether there was anything.
    #[inline]
    pub(crate) fn require(&self, offset: u64, length: u64) -> bool {
        let is_absent = self.is_absent(offset, length);
        if is_absent {
            self.fetch(offset, length);
        }
        is_absent
    }

    #[cold]
    fn fetch(&self, offset: u64, length: u64) {
        let mut bytes = self.fetching.lock().unpoisoned();
        for chunk in self.chunks(offset, length) {
            if !self.absent[chunk].load(Ordering::Acquire) {
                continue;
            }
            let start = chunk as u64 * CHUNK_BYTES;
            let bytes = &mut bytes[..CHUNK_BYTES.min(self.length - start) as usize];
            let fetched = self.source.fetch(chunk, bytes);
            if let Err(error) = fetched.and_then(|()| self.file.write_all_at(bytes, start)) {
                self.source.give_up(&error);
            }
            self.absent[chunk].store(false, Ordering::Release);
            self.left.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The chunks that have not been fetched.
    pub(crate) fn absent(&self) -> impl Iterator<Item = usize> {
        let chunks = self.absent.iter().enumerate();
        chunks.filter(|(_, absent)| absent.load(Ordering::Acquire)).map(|(chunk, _)| chunk)
    }

    /// Read a chunk, from where it is.
    pub(crate) fn read(&self, chunk: usize, bytes: &mut [u8]) -> io::Result<()> {
        let is_absent =
            || self.absent.get(chunk).is_some_and(|absent| absent.load(Ordering::Acquire));
        if is_absent() {
            // Who fetches it meanwhile writes what we read.
            let _fetching = self.fetching.lock().unpoisoned();
            if is_absent() {
                return self.source.fetch(chunk, bytes);
            }
        }
        self.file.read_exact_at(bytes, chunk as u64 * CHUNK_BYTES)
    }

    /// These bytes of the file are about to be zeroes: what lies in them wholly need not be fetched any
    /// more, `discard` makes it so.
    pub(crate) fn forget<R>(&self, offset: u64, length: u64, discard: impl FnOnce() -> R) -> R {
        let (first, last) = (offset, offset + length);
        self.require(first, 1);
        self.require(last.saturating_sub(1), 1);
        let _fetching = self.fetching.lock().unpoisoned();
        for chunk in self.chunks(offset, length) {
            if self.absent[chunk].swap(false, Ordering::AcqRel) {
                self.left.fetch_sub(1, Ordering::AcqRel);
            }
        }
        discard()
    }

    fn chunks(&self, offset: u64, length: u64) -> std::ops::Range<usize> {
        let first = (offset / CHUNK_BYTES) as usize;
        let end = offset.saturating_add(length).div_ceil(CHUNK_BYTES) as usize;
        first..end.min(self.absent.len())
    }
}

impl std::fmt::Debug for Backing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} chunks to fetch", self.left.load(Ordering::Relaxed))
    }
}

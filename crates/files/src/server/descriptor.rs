//! Descriptors that name files, and the open files behind them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::io::Errno;

/// Our own descriptors, by number: the one way to open a file that is known by an `O_PATH` descriptor.
pub const OWN_DESCRIPTORS: &str = "/proc/self/fd";

/// The name of a descriptor in [`OWN_DESCRIPTORS`].
pub fn number(descriptor: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    descriptor.as_raw_fd().to_string()
}

/// A name for a file that cannot do anything else, and is counted.
#[derive(Debug)]
pub struct Descriptor {
    file: OwnedFd,
    /// The file open for reading, where the guest does not say when it opens files.
    reader: OnceLock<Open>,
    count: Arc<AtomicUsize>,
}

/// An open file or directory.
#[derive(Debug)]
pub struct Open {
    pub file: OwnedFd,
    /// Held by who reads a directory, which has one position.
    pub reading: Mutex<()>,
}

impl Open {
    pub fn new(file: OwnedFd) -> Self {
        Self { file, reading: Mutex::new(()) }
    }
}

impl Descriptor {
    /// The file open for reading; `open` opens it the first time.
    pub fn reader(&self, open: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<&Open, Errno> {
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let opened = Open::new(open()?);
        if self.reader.set(opened).is_ok() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        self.reader.get().ok_or(Errno::STALE)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let open = 1 + usize::from(self.reader.get().is_some());
        self.count.fetch_sub(open, Ordering::Relaxed);
    }
}

/// A descriptor that is counted there.
pub fn counted(count: &Arc<AtomicUsize>, file: OwnedFd) -> Arc<Descriptor> {
    count.fetch_add(1, Ordering::Relaxed);
    Arc::new(Descriptor { file, reader: OnceLock::new(), count: Arc::clone(count) })
}

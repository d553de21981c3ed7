//! How a machine ends: from any of its processors, or from outside, and for all of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::configuration::{Error, Outcome};
use crate::waker::Waker;

/// One of the processors has come to an end.
const ENDED: u32 = 1;
/// Somebody outside wants the end. It stays so.
const STOPPED: u32 = 2;

/// Shared by all who can end a machine. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    over: AtomicU32,
    /// What the first one said who ended it. Nothing else is locked under it.
    result: Mutex<Option<Result<Outcome, Error>>>,
    wakers: Vec<Waker>,
}

impl Control {
    /// Over the processors behind these wakers.
    pub(crate) fn new(wakers: Vec<Waker>) -> Self {
        let (over, result) = (AtomicU32::new(0), Mutex::new(None));
        Self { shared: Arc::new(Shared { over, result, wakers }) }
    }

    /// The waker of a processor.
    pub(crate) fn waker(&self, processor: usize) -> &Waker {
        &self.shared.wakers[processor]
    }

    /// Whether the processors are to return.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Acquire) != 0
    }

    /// The machine ends with `result`, unless it is ending already.
    pub(crate) fn end(&self, result: Result<Outcome, Error>) {
        self.result().get_or_insert(result);
        self.finish(ENDED);
    }

    /// The machine ends because somebody wants it to.
    pub(crate) fn stop(&self) {
        self.finish(STOPPED);
    }

    /// How it ended; it may start again after that.
    pub(crate) fn take_result(&self) -> Result<Outcome, Error> {
        let result = self.result().take();
        self.shared.over.fetch_and(!ENDED, Ordering::AcqRel);
        result.unwrap_or(Ok(Outcome::Stopped))
    }

    fn finish(&self, why: u32) {
        self.shared.over.fetch_or(why, Ordering::AcqRel);
        self.shared.wakers.iter().for_each(Waker::wake);
    }

    fn result(&self) -> std::sync::MutexGuard<'_, Option<Result<Outcome, Error>>> {
        self.shared.result.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the machine if the thread that has it panics.
pub(crate) struct Guard<'a> {
    pub(crate) control: &'a Control,
    pub(crate) processor: usize,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.control.end(Err(Error::Panicked(self.processor)));
        }
    }
}

//! How a machine ends: from any of its processors, or from outside, and for all of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::configuration::{Error, MAX_PROCESSORS, Outcome};
use crate::waker::Waker;

/// One of the processors has come to an end.
const ENDED: u32 = 1;
/// Somebody outside wants the end. It stays so.
const STOPPED: u32 = 2;
/// Somebody outside wants to know what the first processor does; the next bit is for the second one.
const REPORT: u32 = 1 << 16;

const _: () = assert!(MAX_PROCESSORS <= 16);

/// Shared by all who can end a machine. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// [`ENDED`], [`STOPPED`], and [`REPORT`] for each processor.
    orders: AtomicU32,
    /// What the first one said who ended it. Nothing else is locked under it.
    result: Mutex<Option<Result<Outcome, Error>>>,
    wakers: Vec<Waker>,
}

impl Control {
    /// Over the processors behind these wakers.
    pub(crate) fn new(wakers: Vec<Waker>) -> Self {
        let (orders, result) = (AtomicU32::new(0), Mutex::new(None));
        Self { shared: Arc::new(Shared { orders, result, wakers }) }
    }

    /// The waker of a processor.
    pub(crate) fn waker(&self, processor: usize) -> &Waker {
        &self.shared.wakers[processor]
    }

    /// Whether there is anything that [`Self::is_over`] and [`Self::take_report`] tell.
    #[inline]
    pub(crate) fn has_orders(&self) -> bool {
        self.shared.orders.load(Ordering::Acquire) != 0
    }

    /// Whether the processors are to return.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.orders.load(Ordering::Acquire) & (ENDED | STOPPED) != 0
    }

    /// Whether a processor is to say what it does; it is, once.
    pub(crate) fn take_report(&self, processor: usize) -> bool {
        let bit = REPORT << processor;
        self.shared.orders.load(Ordering::Acquire) & bit != 0
            && self.shared.orders.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Every processor is to say what it does.
    pub(crate) fn ask_for_reports(&self) {
        let all = (0..self.shared.wakers.len()).fold(0, |all, number| all | REPORT << number);
        self.order(all);
    }

    /// The machine ends with `result`, unless it is ending already.
    pub(crate) fn end(&self, result: Result<Outcome, Error>) {
        self.result().get_or_insert(result);
        self.order(ENDED);
    }

    /// The machine ends because somebody wants it to.
    pub(crate) fn stop(&self) {
        self.order(STOPPED);
    }

    /// How it ended; it may start again after that.
    pub(crate) fn take_result(&self) -> Result<Outcome, Error> {
        let result = self.result().take();
        self.shared.orders.fetch_and(!ENDED, Ordering::AcqRel);
        result.unwrap_or(Ok(Outcome::Stopped))
    }

    fn order(&self, what: u32) {
        self.shared.orders.fetch_or(what, Ordering::AcqRel);
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

//! What the guest asks of the program that runs the machine: to end it, or to start it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The guest has switched itself off.
    PowerOff,
    /// The guest wants to start again.
    Reset,
    /// The guest wrote this to the debug-exit port; the process is to end with status
    /// `value << 1 | 1`.
    DebugExit(u32),
}

/// Where devices leave a request; the first one counts. Clones are the same place.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    slot: Arc<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    kind: AtomicU32,
    value: AtomicU32,
}

const NONE: u32 = 0;
const POWER_OFF: u32 = 1;
const RESET: u32 = 2;
const DEBUG_EXIT: u32 = 3;
const BEING_WRITTEN: u32 = 4;

impl Requests {
    /// Make a request, unless one is there.
    pub fn make(&self, request: Request) {
        let (kind, value) = match request {
            Request::PowerOff => (POWER_OFF, 0),
            Request::Reset => (RESET, 0),
            Request::DebugExit(value) => (DEBUG_EXIT, value),
        };
        let slot = &self.slot;
        let claim =
            slot.kind.compare_exchange(NONE, BEING_WRITTEN, Ordering::Acquire, Ordering::Relaxed);
        if claim.is_ok() {
            slot.value.store(value, Ordering::Relaxed);
            slot.kind.store(kind, Ordering::Release);
        }
    }

    /// The request that was made, once.
    #[inline]
    pub fn take(&self) -> Option<Request> {
        let kind = self.slot.kind.load(Ordering::Acquire);
        let request = match kind {
            POWER_OFF => Request::PowerOff,
            RESET => Request::Reset,
            DEBUG_EXIT => Request::DebugExit(self.slot.value.load(Ordering::Relaxed)),
            _ => return None,
        };
        self.slot.kind.store(NONE, Ordering::Release);
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_counts_and_is_taken_once() {
        let requests = Requests::default();
        assert_eq!(requests.take(), None);
        requests.clone().make(Request::DebugExit(7));
        requests.make(Request::Reset);
        assert_eq!(requests.take(), Some(Request::DebugExit(7)));
        assert_eq!(requests.take(), None);
        requests.make(Request::PowerOff);
        assert_eq!(requests.take(), Some(Request::PowerOff));
    }
}

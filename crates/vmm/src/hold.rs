//! How a debugger holds the processors, has them do something, and lets some or all of them go on.
//!
//! 1. *To be held is to stand still*, as for a pause or a snapshot: between two instructions, at the head of the run
//!    loop. A machine may be held and paused at once, and goes on when it is neither.
//! 2. *One that stops for the debugger holds all.* It says why, and then stands still itself.
//! 3. *What is done to a vCPU is done on its own thread*, while it stands still ([`Task`]).
//! 4. *A machine that is not held pays nothing for this*: it is one more bit of the orders.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use cpu::{Stopped, Vcpu};
use locks::Unpoisoned;

/// What a debugger has a processor do.
pub(crate) struct Task(pub(crate) Box<dyn FnOnce(&mut Vcpu) + Send>);

impl Task {
    /// Do it.
    pub(crate) fn carry_out(self, cpu: &mut Vcpu) {
        (self.0)(cpu);
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Task")
    }
}

/// What a debugger has to do with the processors.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// The processors that run although others are held: a bit for each.
    released: AtomicU32,
    /// Which have stopped, and why. Nothing else is locked under it.
    stops: Mutex<VecDeque<(usize, Stopped)>>,
    /// What tells the debugger that there is something in `stops`.
    event: OnceLock<OwnedFd>,
}

impl Hold {
    /// Whether a processor runs although others are held.
    pub(crate) fn is_released(&self, processor: usize) -> bool {
        self.released.load(Ordering::Acquire) & 1 << processor != 0
    }

    /// These run, a bit for each, and no others.
    pub(crate) fn release(&self, which: u32) {
        self.released.store(which, Ordering::Release);
    }

    /// Tell the debugger of stops by this. False if there is one already.
    pub(crate) fn tell_by(&self, event: OwnedFd) -> bool {
        self.event.set(event).is_ok()
    }

    /// Which have stopped and have not been told of.
    pub(crate) fn stops(&self) -> MutexGuard<'_, VecDeque<(usize, Stopped)>> {
        self.stops.lock().unpoisoned()
    }

    /// There is something to tell.
    pub(crate) fn tell(&self) {
        if let Some(event) = self.event.get() {
            // It is full when nobody has looked for very long, and readable then.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }
}

//! Kicks: how other threads, and timers, get a vCPU out of the guest's code.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// Shared between a vCPU and the threads that kick it.
#[derive(Debug, Default)]
pub(crate) struct KickState {
    pub(crate) requested: AtomicU32,
    /// The thread that runs the vCPU; 0 when none does.
    pub(crate) thread: AtomicI32,
    /// The vCPU is in [`crate::Vcpu::run`] (vcpu_group.rs).
    busy: AtomicBool,
    /// Stops a helper process that the vCPU waits for (user/mod.rs).
    pub(crate) direct: direct::Kick,
    /// The alarm has gone off ([`crate::Vcpu::set_alarm`]).
    has_gone_off: AtomicBool,
    /// Another vCPU wants this one to flush its translations.
    must_flush: AtomicBool,
}

/// Request: [`crate::Vcpu::run`] returns.
const RETURN: u32 = 1;

/// Request: another vCPU wants to be alone.
const WAIT: u32 = 2;

/// Request: the vCPU comes to the head of its run loop.
const LOOK: u32 = 4;

/// Request: the vCPU looks at what its user code does (user/look.rs).
const CONSIDER: u32 = 8;

impl KickState {
    /// Clear the request to return; whether there was one.
    pub(crate) fn take(&self) -> bool {
        self.requested.load(Ordering::SeqCst) & RETURN != 0
            && self.requested.fetch_and(!RETURN, Ordering::SeqCst) & RETURN != 0
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst) != 0
    }

    /// Whether another vCPU wants to be alone.
    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        self.requested.load(Ordering::SeqCst) & WAIT != 0
    }

    /// Have the vCPU wait before it goes on.
    pub(crate) fn ask_to_wait(&self) {
        self.request(WAIT);
    }

    /// Have the vCPU come to the head of its run loop, where it sees what has changed.
    pub(crate) fn ask_to_look(&self) {
        self.request(LOOK);
    }

    /// It is there.
    #[inline]
    pub(crate) fn has_looked(&self) {
        if self.requested.load(Ordering::SeqCst) & LOOK != 0 {
            self.requested.fetch_and(!LOOK, Ordering::SeqCst);
        }
    }

    /// Take the timer's request back, if there is one.
    #[inline]
    pub(crate) fn take_consider(&self) -> bool {
        self.requested.load(Ordering::SeqCst) & CONSIDER != 0
            && self.requested.fetch_and(!CONSIDER, Ordering::SeqCst) & CONSIDER != 0
    }

    /// Undo [`Self::ask_to_wait`].
    pub(crate) fn let_go(&self) {
        self.requested.fetch_and(!WAIT, Ordering::SeqCst);
    }

    /// Have the vCPU flush its translations before it executes anything more.
    pub(crate) fn ask_to_flush(&self) {
        self.must_flush.store(true, Ordering::SeqCst);
    }

    /// Whether it is to, once.
    pub(crate) fn take_flush(&self) -> bool {
        self.must_flush.load(Ordering::SeqCst) && self.must_flush.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::SeqCst);
    }

    /// The timer for looks has gone off. For a signal's handler on the processor's thread.
    pub(crate) fn consider(&self) {
        self.requested.fetch_or(CONSIDER, Ordering::SeqCst);
    }

    /// The alarm has gone off. For a signal's handler on the processor's thread: no lock, no thread-local storage.
    pub(crate) fn alarm(&self) {
        self.has_gone_off.store(true, Ordering::SeqCst);
        self.requested.fetch_or(RETURN, Ordering::SeqCst);
        self.direct.kick();
    }

    /// Whether the alarm has gone off since this was asked last.
    #[inline]
    pub(crate) fn take_alarm(&self) -> bool {
        self.has_gone_off.load(Ordering::SeqCst) && self.has_gone_off.swap(false, Ordering::SeqCst)
    }

    fn request(&self, what: u32) {
        if self.requested.fetch_or(what, Ordering::SeqCst) & what != 0 {
            return;
        }
        self.direct.kick();
        let thread = self.thread.load(Ordering::SeqCst);
        // SAFETY: sending a signal to a thread of this process; if it has ended, the call fails.
        unsafe {
            if thread != 0 && thread != libc::gettid() {
                let signal = kick_signal();
                libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal);
            }
        }
    }
}

/// Makes [`crate::Vcpu::run`] return soon with [`crate::Exit::Kicked`]; may be used from any thread.
#[derive(Debug, Clone)]
pub struct Kick {
    pub(crate) state: Arc<KickState>,
}

impl Kick {
    /// Ask the processor to come back. A request made while it is not running is honoured at the
    /// next [`crate::Vcpu::run`].
    pub fn kick(&self) {
        self.state.request(RETURN);
    }
}

/// The signal that stops translated code.
pub(crate) fn kick_signal() -> i32 {
    libc::SIGRTMIN() + 5
}

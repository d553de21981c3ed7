//! Interrupting a run from another thread.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Nothing runs.
const IDLE: u32 = 0;
/// A run that has not been kicked.
const RUNNING: u32 = 1;
/// Another thread is sending the signal.
const SENDING: u32 = 2;
/// The signal has been sent.
const SENT: u32 = 3;
/// Nothing runs, and the next run is not to begin.
const EARLY: u32 = 4;

/// Makes the current run of one vCPU, in any of its spaces, stop soon. A kick while nothing runs
/// makes the next run stop at once; every return from a run consumes the kicks before it.
///
/// No run is sent more than one signal, and none is left over for the next: the stub relies on it.
#[derive(Debug, Default)]
pub struct Kick {
    state: AtomicU32,
    /// The pidfd of the runner.
    target: AtomicI32,
}

impl Kick {
    /// A kick for one vCPU.
    pub const fn new() -> Self {
        Self { state: AtomicU32::new(IDLE), target: AtomicI32::new(-1) }
    }

    /// Stop the run. May be called from a signal handler, whatever it has interrupted: it takes no
    /// lock and touches no thread-local storage.
    pub fn kick(&self) {
        let change = |from, to| {
            self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        loop {
            if change(RUNNING, SENDING) {
                // The run cannot end before the next line but one.
                send(self.target.load(Ordering::SeqCst));
                self.state.store(SENT, Ordering::SeqCst);
                return;
            }
            if change(IDLE, EARLY) || self.state.load(Ordering::SeqCst) > RUNNING {
                return;
            }
        }
    }

    /// A run begins; false if it must not.
    pub(crate) fn enter(&self, target: i32) -> bool {
        self.target.store(target, Ordering::SeqCst);
        let entered =
            self.state.compare_exchange(IDLE, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
        if entered.is_err() {
            self.state.store(IDLE, Ordering::SeqCst);
        }
        entered.is_ok()
    }

    /// A run has ended; returns whether a signal was sent to it.
    pub(crate) fn leave(&self) -> bool {
        loop {
            let idle =
                self.state.compare_exchange(RUNNING, IDLE, Ordering::SeqCst, Ordering::SeqCst);
            match idle {
                Ok(_) => return false,
                Err(SENDING) => std::thread::yield_now(),
                Err(_) => {
                    self.state.store(IDLE, Ordering::SeqCst);
                    return true;
                }
            }
        }
    }
}

/// Send the kick to a runner. The C library's wrapper would write `errno`, which is found through
/// FS; a signal handler that interrupts translated code has the guest's there.
fn send(target: i32) {
    // SAFETY: sends a signal to a process of ours, or fails; touches no memory. The kernel changes
    // RAX, RCX and R11 only.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_pidfd_send_signal => _,
            in("rdi") i64::from(target),
            in("rsi") i64::from(libc::SIGUSR1),
            in("rdx") 0_i64,
            in("r10") 0_i64,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kick_is_consumed_by_one_run() {
        let kick = Kick::new();
        kick.kick();
        kick.kick();
        assert!(!kick.enter(-1));
        assert!(kick.enter(-1));
        kick.kick();
        kick.kick();
        assert!(kick.leave());
        assert!(kick.enter(-1));
        assert!(!kick.leave());
    }
}

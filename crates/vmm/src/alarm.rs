//! Waking the processor: at a deadline while it computes, and at a deadline or an event while it
//! is halted.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use machine::time::Nanoseconds;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::processor::Kick;

/// Makes the processor look at the machine again, whether it computes or sleeps; from any thread.
#[derive(Debug, Clone)]
pub struct Waker {
    kick: Arc<dyn Kick>,
    event: Arc<OwnedFd>,
}

impl Waker {
    /// A waker for the processor behind `kick`.
    ///
    /// # Errors
    ///
    /// The host's refusal of an event descriptor.
    pub fn new(kick: Arc<dyn Kick>) -> Result<Self, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { kick, event: Arc::new(event) })
    }

    /// Wake the processor.
    pub fn wake(&self) {
        // A full counter means that it is awake already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        self.kick.kick();
    }

    /// Sleep until somebody wakes us, at most for `span`; for ever without one.
    pub fn sleep(&self, span: Option<Duration>) {
        let mut polled = [PollFd::new(&self.event, PollFlags::IN)];
        let timeout = span.map(|span| Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(span.subsec_nanos()),
        });
        // A signal ends the sleep early, which is as good as an event.
        let _ = poll(&mut polled, timeout.as_ref());
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.event, &mut counter);
    }
}

/// A timer that kicks the processor.
///
/// That it has gone off is said by the thread that kicks, not inferred from the clock: the
/// machine's clock and the host's timers run apart by some parts in a million, and a machine that
/// believed an alarm to be still ahead that has come a little early would wait for it in vain.
#[derive(Debug)]
pub struct Alarm {
    timer: Arc<OwnedFd>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// When it is set to go off; never, if not set.
    armed: Nanoseconds,
}

/// Between the alarm and its thread.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    gone_off: AtomicBool,
}

impl Alarm {
    /// A timer that is not set.
    ///
    /// # Errors
    ///
    /// The host's refusal of a timer or a thread.
    pub fn new(kick: Arc<dyn Kick>) -> std::io::Result<Self> {
        let timer = Arc::new(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?);
        let shared = Arc::new(Shared::default());
        let (its_timer, its_shared) = (Arc::clone(&timer), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("alarm".into()).spawn(move || {
            let mut expirations = [0; 8];
            while rustix::io::read(&its_timer, &mut expirations).is_ok() {
                if its_shared.stop.load(Ordering::Acquire) {
                    return;
                }
                its_shared.gone_off.store(true, Ordering::Release);
                kick.kick();
            }
        })?;
        Ok(Self { timer, shared, thread: Some(thread), armed: Nanoseconds::NEVER })
    }

    /// See to it that the processor is kicked at `deadline` at the latest. Costs nothing when it
    /// already would be.
    pub fn set(&mut self, deadline: Nanoseconds, now: Nanoseconds) {
        let gone_off = &self.shared.gone_off;
        if gone_off.load(Ordering::Relaxed) && gone_off.swap(false, Ordering::Acquire) {
            self.armed = Nanoseconds::NEVER;
        }
        if deadline < self.armed {
            self.armed = deadline;
            self.settime(deadline.since(now).0.max(1));
        }
    }

    fn settime(&self, nanoseconds: u64) {
        let when = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: (nanoseconds / 1_000_000_000).min(i32::MAX as u64) as i64,
                tv_nsec: (nanoseconds % 1_000_000_000) as i64,
            },
        };
        // The value is valid by construction.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &when);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.settime(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

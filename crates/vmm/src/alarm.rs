//! Bringing a processor that computes back at a deadline. (One that sleeps wakes by itself.)
//!
//! Each processor has a timer of the host; one thread waits for them all.
//!
//! That a timer has gone off is said by that thread, not inferred from the clock: the machine's
//! clock and the host's timers run apart by some parts in a million, and a machine that believed an
//! alarm to be still ahead that has come a little early would wait for it in vain.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use machine::time::Nanoseconds;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::waker::Waker;

/// What stands for the end of the thread among the processors' numbers.
const STOP: u64 = u64::MAX;

/// A timer that wakes one processor.
#[derive(Debug)]
pub(crate) struct Alarm {
    bell: Arc<Bell>,
    /// When it is set to go off; never, if not set.
    armed: Nanoseconds,
}

/// Between an alarm and the thread.
#[derive(Debug)]
struct Bell {
    timer: OwnedFd,
    gone_off: AtomicBool,
    waker: Waker,
}

/// The thread that waits for all alarms of a machine.
#[derive(Debug)]
pub(crate) struct Alarms {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Alarms {
    /// Alarms that are not set, one for each of `wakers`.
    ///
    /// # Errors
    ///
    /// The host's refusal of a timer or a thread.
    pub(crate) fn new(wakers: &[Waker]) -> std::io::Result<(Self, Vec<Alarm>)> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        epoll::add(&all, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        let mut bells = Vec::new();
        for (number, waker) in wakers.iter().enumerate() {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&all, &timer, data, epoll::EventFlags::IN)?;
            let (gone_off, waker) = (AtomicBool::new(false), waker.clone());
            bells.push(Arc::new(Bell { timer, gone_off, waker }));
        }
        let ring = bells.clone();
        let thread = std::thread::Builder::new().name("alarm".into()).spawn(move || {
            wait(&all, &ring);
        })?;
        let alarms = bells.into_iter().map(|bell| Alarm { bell, armed: Nanoseconds::NEVER });
        Ok((Self { stop, thread: Some(thread) }, alarms.collect()))
    }
}

/// Wake whoever's timer goes off, until the end.
fn wait(all: &OwnedFd, bells: &[Arc<Bell>]) {
    // No later than asked for; the default is 50 microseconds (prctl(2), PR_SET_TIMERSLACK).
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut events = Vec::with_capacity(bells.len() + 1);
    loop {
        match epoll::wait(all, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        for event in events.drain(..) {
            if event.data.u64() == STOP {
                return;
            }
            if let Some(bell) = bells.get(event.data.u64() as usize) {
                let _ = rustix::io::read(&bell.timer, &mut [0; 8]);
                bell.gone_off.store(true, Ordering::Release);
                bell.waker.wake();
            }
        }
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Alarm {
    /// See to it that the processor is woken at `deadline` at the latest. Costs nothing when it
    /// already would be.
    #[inline]
    pub(crate) fn set(&mut self, deadline: Nanoseconds, now: impl FnOnce() -> Nanoseconds) {
        let gone_off = &self.bell.gone_off;
        if gone_off.load(Ordering::Relaxed) && gone_off.swap(false, Ordering::Acquire) {
            self.armed = Nanoseconds::NEVER;
        }
        if deadline < self.armed {
            self.armed = deadline;
            self.settime(deadline.since(now()).0.max(1));
        }
    }

    /// The processor sleeps and wakes by itself.
    pub(crate) fn unset(&mut self) {
        if self.armed != Nanoseconds::NEVER {
            self.armed = Nanoseconds::NEVER;
            self.settime(0);
        }
    }

    /// Zero switches it off.
    fn settime(&self, nanoseconds: u64) {
        let when = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: (nanoseconds / 1_000_000_000).min(i32::MAX as u64) as i64,
                tv_nsec: (nanoseconds % 1_000_000_000) as i64,
            },
        };
        // The value is valid by construction.
        let _ = timerfd_settime(&self.bell.timer, TimerfdTimerFlags::empty(), &when);
    }
}

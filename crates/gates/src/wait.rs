//! Waiting for several words at once (futex_waitv(2), Linux 5.16).

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec};

/// The most words that can be waited for (`FUTEX_WAITV_MAX`).
pub const WORDS_MAX: usize = 128;

/// How long is waited for words that cannot be waited for all at once.
const PATIENCE: Duration = Duration::from_millis(1);

/// A word, and what it is now.
#[derive(Debug, Clone, Copy)]
pub struct Word<'a> {
    /// Which.
    pub word: &'a AtomicU32,
    /// What it is as long as it is waited for.
    pub value: u32,
    /// Other processes change it, too.
    pub is_shared: bool,
}

impl Word<'_> {
    fn as_wait(&self) -> Wait {
        let mut wait = Wait::new();
        wait.val = self.value.into();
        wait.uaddr = WaitPtr::new(self.word.as_ptr().cast());
        wait.flags = WaitFlags::SIZE_U32;
        if !self.is_shared {
            wait.flags |= WaitFlags::PRIVATE;
        }
        wait
    }
}

/// Wait until one of the words has changed, or until a time on the monotonic clock; or for less, for no reason. Where
/// the host has no such call, or there are too many words, it ends after a millisecond.
pub fn wait_for_any(words: &[Word<'_>], until: Option<u64>) {
    let all = words.len() <= WORDS_MAX;
    let waits: Vec<Wait> = words.iter().take(WORDS_MAX).map(Word::as_wait).collect();
    let soon = || super::now().saturating_add(super::nanoseconds(PATIENCE));
    let until = if all { until } else { Some(until.unwrap_or(u64::MAX).min(soon())) };
    let timespec = until.map(|until| Timespec {
        tv_sec: i64::try_from(until / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (until % 1_000_000_000) as i64,
    });
    let flags = WaitvFlags::empty();
    let waited = futex::waitv(&waits, flags, timespec.as_ref(), ClockId::Monotonic);
    // If not, it was woken, time is up, or something has changed already.
    if let Err(Errno::NOSYS | Errno::PERM) = waited {
        std::thread::sleep(PATIENCE);
    }
}

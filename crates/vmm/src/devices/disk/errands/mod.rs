//! What processors' threads do for disks themselves, instead of waking a disk's thread ([`super::pool`]).
//!
//! To wake a thread on an idle core costs the host as much as a third of a flush, and a write with its flush
//! that is done by others has four of these. A guest that waits for its disk has a thread that has nothing
//! to do: its processor's. So that does the work, in two steps:
//!
//! 1. *At the doorbell, what waits for nothing*: once the exit has been dealt with, when the chip set is not
//!    locked any more, the queue is served, what the host has in its page cache is read, and what is small is
//!    written there. That is over before the guest could have turned to something else.
//! 2. *Who halts helps*: what is left, a flush for one, is done when the guest halts, if it does within
//!    [`LEAVE_AFTER`]; else an alarm brings the processor back, and it is left to the disk's threads. One such job,
//!    then the guest goes on. To set a timer of the host's and to take it back cost as much as a wake-up, where the
//!    host is a virtual machine itself. So a guest that has halted again and again has more time, up to
//!    [`LEAVE_AFTER_MOST`], and a timer that is set stays set: it serves several errands. Each halt in time adds
//!    [`LEAVE_AFTER`], so that what a guest can lose when it computes for once is less than what it has gained.
//!
//! What it must not do, and why it does not:
//!
//! - *Keep a guest that computes from it.* For a guest that rings again and again without a halt ([`MOST_RINGS`]) a
//!   processor does only what takes no longer than to call a thread: some pages that are at hand. Where nothing was,
//!   and for the rest, the disk's threads work beside it. So they do for one that does not halt after it has asked for
//!   something (`Backoff`). What is large, or a matter of the file system's trees (discards), is never done here.
//! - *Keep a processor from its interrupts.* Nobody can take a thread out of an fdatasync(2). So none begins
//!   one while a timer of the guest's is due within twice the time that one takes, or [`SLOW`], nor while a reset,
//!   a pause or the machine's end is waiting. One that was slow all the same is remembered: of the next ones, up to
//!   [`MOST_UNHELPED`] are left to the disk's threads, likewise for writes. So the guest's interrupts are late by
//!   less than [`SLOW`], but once in a while on a disk that is slow. To other processors it says that it sleeps, so
//!   that a flush of their TLBs does not wait for it.
//! - *Hold others up.* No lock is held while a byte is moved or a flush goes on: neither the device's nor the
//!   list of jobs'. Who finds the device locked does not wait: whoever serves it looks again when that is done.
//! - *Lose work.* What a processor leaves, it has promised to do: it does, or calls a thread ([`Disks::leave`]),
//!   also before it stands still (for a snapshot), before it ends, and when it is reset. Whoever else serves the
//!   device finds that nobody attends, and calls a thread for what it has found (`Frontend::start`).
//!
//! A flush covers the writes that have ended when it is begun, whoever does either, as before: what is under way
//! at the same time has no order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use devices::virtio::Shared;

use super::pool::{Left, Pool};

/// What is left at the doorbell is left to the disk's threads if the guest has not halted by then.
pub(crate) const LEAVE_AFTER: Duration = Duration::from_micros(100);

/// The same for a guest that has always halted of late.
pub(crate) const LEAVE_AFTER_MOST: Duration = Duration::from_millis(2);

/// How long a halting processor has to be free to do what may wait, at least and at most: between these, twice as
/// long as that took of late.
pub(super) const LEAST_FREE: Duration = Duration::from_micros(100);
pub(super) const SLOW: Duration = Duration::from_millis(1);

/// Doorbells between two halts that a processor attends to as if its guest waited; to more it attends briefly.
pub(crate) const MOST_RINGS: u32 = 8;

/// The most slow jobs, or errands that no halt followed, that are left to the disk's threads after one.
pub(crate) const MOST_UNHELPED: u32 = 255;

/// The disks of a machine, as its processors see them.
#[derive(Default)]
pub(crate) struct Disks {
    rung: Arc<AtomicBool>,
    disks: Vec<(Arc<Pool>, Arc<Shared>)>,
}

/// What came of an errand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Errand {
    /// Jobs that were done.
    pub(crate) jobs: u64,
    /// Something is left for who halts.
    pub(crate) is_left: bool,
}

impl Disks {
    /// What doorbells leave a note in.
    pub(crate) fn rung(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.rung)
    }

    /// One more, with its device.
    pub(crate) fn add(&mut self, pool: Arc<Pool>, device: Arc<Shared>) {
        self.disks.push((pool, device));
    }

    /// Whether a doorbell has been rung that nobody has attended to, once.
    #[inline]
    pub(crate) fn take_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::SeqCst)
    }

    /// Do what waits for nothing; what takes no time either, if we are to be `brief`.
    pub(crate) fn attend(&self, brief: bool) -> Errand {
        self.each(|pool, device| pool.attend(device, brief))
    }

    /// Do what was left, and may wait, for a processor that has nothing else to do.
    pub(crate) fn help(&self) -> Errand {
        self.each(|pool, device| pool.help(device))
    }

    /// How long a processor has to be free to help.
    pub(crate) fn needed(&self) -> Duration {
        let needed = self.disks.iter().map(|(pool, _)| pool.needed());
        needed.max().unwrap_or_default()
    }

    /// Leave everything to the disks' threads.
    pub(crate) fn leave(&self) {
        self.disks.iter().for_each(|(pool, _)| pool.call_for_all());
    }

    fn each(&self, errand: impl Fn(&Arc<Pool>, &Arc<Shared>) -> (u64, Left)) -> Errand {
        let mut all = Errand::default();
        for (pool, device) in &self.disks {
            let (jobs, left) = errand(pool, device);
            all.jobs += jobs;
            match left {
                Left::Nothing => {}
                Left::Little => all.is_left = true,
                Left::Much => pool.call_for_all(),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;

//! I/O of disks that vCPUs' threads complete themselves, instead of waking an I/O thread ([`super::pool`]). The names
//! in capitals are in [`super::thresholds`].
//!
//! To wake a thread on an idle core costs the host as much as a third of a flush, and a write with its flush takes four
//! wake-ups when I/O threads do both. While a guest waits for its disk, its vCPU's thread is idle. So that thread does
//! the work, in two steps:
//!
//! 1. *At the doorbell, what does not block*: after the exit, when the chip set is unlocked again, the vCPU's thread
//!    serves the queue, reads what the host has in its page cache, and writes small requests to the page cache. It is
//!    done before the guest could have switched to another task.
//! 2. *At a halt, what blocks*: the vCPU's thread performs the rest, such as a flush, if the guest halts within
//!    `LEAVE_AFTER`; else an alarm brings the thread back, and it leaves the job to the I/O threads. It performs one
//!    such job, and then the guest continues. Where the host is a virtual machine itself, to set a timer and to cancel
//!    it costs as much as a wake-up. So a guest that has halted in time again and again gets longer, up to
//!    `LEAVE_AFTER_MOST`, and a timer that is set stays set for several jobs. Each halt in time adds `LEAVE_AFTER`, so
//!    that a guest that computes for once loses less than it has gained.
//!
//! What the vCPU's thread must not do, and why it does not:
//!
//! - *Delay a guest that computes.* If a guest rings more than `MOST_RINGS` times without a halt, the thread does only
//!   what costs no more than a wake-up: some pages that are in the page cache. The I/O threads do the rest in parallel,
//!   and so they do for a guest that does not halt after a request (`Backoff`). The vCPU's thread never performs large
//!   jobs, or jobs that change the file system's trees (discards).
//! - *Delay interrupts.* No signal ends an fdatasync(2) early. So the thread begins none while a timer of the guest is
//!   due within twice the time that one takes, or `SLOW`, nor while a reset, a pause or the end of the machine is
//!   pending. After a slow flush, up to `MOST_UNHELPED` of the next ones are left to the I/O threads; likewise for
//!   writes. So interrupts are late by less than `SLOW`, but once in a while on a slow disk. Meanwhile the vCPU counts
//!   as asleep, so that no other vCPU waits for it to flush its TLB.
//! - *Block other threads.* The thread holds no lock while it moves a byte or flushes: neither the device's nor that
//!   of the list of jobs. A thread that finds the device locked does not wait: the thread that serves the device looks
//!   again when it is done.
//! - *Lose work.* The vCPU's thread has promised to do what it has left for a halt: it does it, or wakes an I/O thread
//!   ([`Disks::leave`]), also before it pauses (for a snapshot), before it ends, and at a reset. Any other thread that
//!   serves the device finds that no thread attends, and wakes one for the jobs that it has queued (`Backend::start`).
//!
//! A flush covers the writes that had completed when the flush began, whichever threads perform them. Requests that are
//! in flight at the same time have no order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use devices::virtio::Shared;

use super::pool::{Left, Pool};

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
    /// Something is left for a vCPU that halts.
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

    /// Whether a doorbell has been rung that no thread has attended to, once.
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

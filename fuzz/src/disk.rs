//! A disk whose jobs end when a step says so, and which writes guest memory then.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use devices::virtio::block::{BlockBackend, Failed, Job, Ticket};
use locks::Unpoisoned;
use machine::memory::Memory;
use vm_memory::GuestAddress;

/// Jobs under way, and those that have ended.
#[derive(Default)]
struct Jobs {
    waiting: VecDeque<(Ticket, Job)>,
    ended: VecDeque<(Ticket, Result<(), Failed>)>,
    /// Queues that are to be served again.
    again: u64,
}

/// See above; clones are the same disk.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<Jobs>>);

impl Disk {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.0.lock().unpoisoned()
    }

    /// The queues that are to be served again, once.
    pub fn take_again(&self) -> u64 {
        std::mem::take(&mut self.jobs().again)
    }

    /// Have the first, or the last, job come to its end; whether there was one.
    pub fn finish(&self, memory: &dyn Memory, last: bool) -> bool {
        let mut jobs = self.jobs();
        let next = if last { jobs.waiting.pop_back() } else { jobs.waiting.pop_front() };
        let Some((ticket, job)) = next else { return false };
        let result = match job {
            Job::Read { target, .. } => target.iter().try_for_each(|segment| {
                let bytes = vec![7; segment.length.min(4096) as usize];
                memory.write(GuestAddress(segment.address), &bytes).map_err(|_| Failed)
            }),
            Job::Write { at, source } => {
                let bytes: u64 = source.iter().map(|segment| u64::from(segment.length)).sum();
                assert!(at + bytes <= self.bytes(), "beyond the disk's end");
                Ok(())
            }
            Job::Zero { at, bytes, .. } => {
                assert!(at + bytes <= self.bytes(), "beyond the disk's end");
                Err(Failed)
            }
            Job::Flush => Ok(()),
        };
        jobs.ended.push_back((ticket, result));
        true
    }
}

impl BlockBackend for Disk {
    fn bytes(&self) -> u64 {
        1 << 20
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn can_discard(&self) -> bool {
        true
    }

    fn serial(&self) -> &str {
        "disk"
    }

    fn start(&mut self, ticket: Ticket, job: Job) -> Option<Result<(), Failed>> {
        self.jobs().waiting.push_back((ticket, job));
        None
    }

    fn finished(&mut self, queue: usize) -> Option<(usize, Result<(), Failed>)> {
        let ended = &mut self.jobs().ended;
        let at = ended.iter().position(|(ticket, _)| ticket.queue == queue)?;
        ended.remove(at).map(|(ticket, result)| (ticket.number, result))
    }

    fn serve_again(&mut self, queue: usize) {
        self.jobs().again |= 1 << queue;
    }
}

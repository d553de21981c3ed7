//! The frames that are the domain's, and those that it could still be given.
//!
//! 1. *A frame that is nobody's reads as zeroes*: at the start all memory does, and what the domain gives back becomes
//!    a hole in the host's file. So to give a frame costs the host nothing until the domain writes to it.
//! 2. *A frame is given back when nothing refers to it.* What vCPUs have cached of it goes before it becomes a hole.
//! 3. *The lowest free frames are given first*, so that the numbers of a domain that shrinks and grows stay contiguous.

use vm_memory::GuestAddress;
use xen_abi::{Mfn, PAGE_SHIFT, errno};

use crate::errno::Errno;
use crate::geometry::{self, Geometry};
use crate::memory::Owned;

/// What is known of the domain's frames beside their records. Who holds it gives and takes frames.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// No frame below this number is free.
    first_free: u64,
    /// Frames that the domain has.
    pub(crate) pages: u64,
}

impl Reservation {
    /// Of a domain without memory.
    pub(crate) fn empty() -> Self {
        Self { first_free: geometry::BASE.0, pages: 0 }
    }

    /// Of one that has the frames that its records say.
    pub(crate) fn of(owned: &Owned) -> Self {
        let frames = owned.frames();
        let is_owned = |frame: &Mfn| frames.shown(*frame).is_some_and(|shown| shown.is_owned);
        let pages = owned.geometry.memory().filter(is_owned).count() as u64;
        Self { first_free: geometry::BASE.0, pages }
    }

    /// Give the domain `1 << order` frames, contiguous and aligned; the first of them.
    pub(crate) fn take(&mut self, owned: &Owned, order: u32) -> Result<Mfn, Errno> {
        let (count, end) = (1 << order, owned.geometry.memory_end().0);
        let mut first = self.first_free.next_multiple_of(count);
        while first + count <= end {
            if assign_all(owned, first, count) {
                if order == 0 {
                    self.first_free = first + 1;
                }
                self.pages += count;
                return Ok(Mfn(first));
            }
            first += count;
        }
        Err(Errno::new(errno::ENOMEM))
    }

    /// Take a frame from the domain, if nothing refers to it.
    ///
    /// Before anybody has the frame again, the caller sees to it that no vCPU has it cached. Before the caller lets go
    /// of the reservation, it makes holes of the frames that nobody has by then ([`Released::discard`]).
    pub(crate) fn release(&mut self, owned: &Owned, frame: Mfn) -> Result<(), Errno> {
        if !owned.geometry.is_memory(frame) {
            return Err(Errno::new(errno::EINVAL));
        }
        owned.frames().release(frame)?;
        self.first_free = self.first_free.min(frame.0);
        self.pages -= 1;
        Ok(())
    }

    /// Give back to the domain what [`Self::release`] has just taken.
    pub(crate) fn restore(&mut self, owned: &Owned, frame: Mfn) {
        // It is nobody's.
        if owned.frames().assign(frame).is_ok() {
            self.pages += 1;
        }
    }
}

/// Assign so many frames, all or none.
fn assign_all(owned: &Owned, first: u64, count: u64) -> bool {
    let frames = owned.frames();
    for frame in first..first + count {
        if frames.assign(Mfn(frame)).is_err() {
            // Nobody could have referred to them: who gives and takes frames holds the reservation.
            (first..frame).for_each(|frame| _ = frames.release(Mfn(frame)));
            return false;
        }
    }
    true
}

/// Frames that were released, and are to become holes.
#[derive(Debug, Default)]
pub(crate) struct Released {
    /// In the order of their release; contiguous ones are one range.
    ranges: Vec<(u64, u64)>,
}

impl Released {
    /// One more.
    pub(crate) fn add(&mut self, frame: Mfn) {
        match self.ranges.last_mut() {
            Some((_, end)) if *end == frame.0 => *end += 1,
            Some((start, _)) if *start == frame.0 + 1 => *start -= 1,
            _ => self.ranges.push((frame.0, frame.0 + 1)),
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Give them to the host; no vCPU reaches them any more.
    pub(crate) fn discard(&self, owned: &Owned) {
        for (start, end) in &self.ranges {
            let bytes = (end - start) << PAGE_SHIFT;
            // What the host does not take is cleared: the domain may have it again.
            let _ = owned.memory.bytes().discard(GuestAddress(start << PAGE_SHIFT), bytes);
        }
    }
}

impl Geometry {
    /// The frames that may be the domain's memory.
    fn memory(&self) -> impl Iterator<Item = Mfn> + use<> {
        (geometry::BASE.0..self.memory_end().0).map(Mfn)
    }

    /// The frame behind them.
    fn memory_end(&self) -> Mfn {
        Mfn(geometry::BASE.0 + self.maximum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_frames_become_one_hole() {
        let mut released = Released::default();
        [7, 8, 9, 5, 4, 3, 20].into_iter().for_each(|frame| released.add(Mfn(frame)));
        assert_eq!(released.ranges, [(7, 10), (3, 6), (20, 21)]);
    }
}

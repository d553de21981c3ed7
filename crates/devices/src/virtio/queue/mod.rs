//! A split virtqueue, from the device's side (virtio 1.2, 2.7).
//!
//! The driver puts heads of chains into the available ring and moves its index on; the device puts
//! them, used, into the used ring and moves that index. Each side may say at which index of the
//! other's it wants to hear of it (the event index, 2.7.10), or by a flag that it does not.
//!
//! Order: entries are read after the index that covers them, and written before it. Between moving
//! one's own index (or event index) and looking at the other side's there is a full fence, or both
//! sides could miss each other.

mod bits;
mod chain;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use machine::memory::{Memory, NoMemory};
use serde::{Deserialize, Serialize};
use vm_memory::GuestAddress;

use bits::{NO_INTERRUPT, NO_NOTIFY, ring};
pub use chain::{Chain, Segment};

/// How a driver has broken the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A ring, table or buffer is where no memory is.
    #[error("a part of a queue is not in memory")]
    NoMemory,
    /// An index names no entry, or has moved by more entries than there are.
    #[error("an index is out of range")]
    Index,
    /// The chain has more descriptors than the queue.
    #[error("a chain has no end")]
    Loop,
    /// A chain has more than 4 GiB.
    #[error("a chain is too long")]
    TooLong,
    /// What is to be read comes after what is to be written.
    #[error("a chain has its parts in the wrong order")]
    Order,
    /// An indirect table that must not be there, or of a wrong length.
    #[error("a table of indirect descriptors makes no sense")]
    Indirect,
    /// The chain lacks what the device needs to answer.
    #[error("a request has no room for its header or its answer")]
    Request,
}

impl From<NoMemory> for Broken {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// What the driver says of a queue before it uses it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub size: u16,
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
    pub enabled: bool,
}

impl Settings {
    /// Whether the parts are aligned as they must be (2.7).
    pub fn are_aligned(&self) -> bool {
        self.descriptors & 15 == 0 && self.available & 1 == 0 && self.used & 3 == 0
    }
}

/// How far a queue has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    next: u16,
    used: u16,
}

/// A queue in use.
pub struct Queue {
    memory: Arc<dyn Memory>,
    settings: Settings,
    event_index: bool,
    /// The next entry of the available ring, and the driver's index when it was last read.
    next: u16,
    seen: u16,
    /// The next entry of the used ring, and our index as it was last published.
    used: u16,
    published: u16,
}

impl Queue {
    pub fn new(memory: Arc<dyn Memory>, settings: Settings, event_index: bool) -> Self {
        Self { memory, settings, event_index, next: 0, seen: 0, used: 0, published: 0 }
    }

    /// How far it has got, if the last `taken` chains are to be taken again. Everything that was used has
    /// been published.
    pub fn position(&self, taken: u16) -> Position {
        Position { next: self.next.wrapping_sub(taken), used: self.published }
    }

    /// Go on from there.
    pub fn go_on(&mut self, from: Position) {
        (self.next, self.seen) = (from.next, from.next);
        (self.used, self.published) = (from.used, from.used);
    }

    pub fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    pub fn size(&self) -> u16 {
        self.settings.size
    }

    /// Take the next chain; false if there is none.
    pub fn pop(&mut self, chain: &mut Chain) -> Result<bool, Broken> {
        if !self.settings.enabled || self.next == self.seen && !self.look()? {
            return Ok(false);
        }
        let entry = ring::ENTRIES + ring::AVAILABLE_BYTES * self.slot(self.next);
        let head = self.load(self.settings.available, entry)?;
        self.next = self.next.wrapping_add(1);
        chain.follow(&*self.memory, &self.settings, head)?;
        Ok(true)
    }

    /// Whether there is more in the available ring than was taken.
    fn look(&mut self) -> Result<bool, Broken> {
        let index = self.load(self.settings.available, ring::INDEX)?;
        if index.wrapping_sub(self.next) > self.settings.size {
            return Err(Broken::Index);
        }
        self.seen = index;
        Ok(index != self.next)
    }

    /// Say that `length` bytes of a chain have been written; [`Self::publish`] tells the driver.
    pub fn put_used(&mut self, head: u16, length: u32) -> Result<(), Broken> {
        let entry = ring::ENTRIES + ring::USED_BYTES * self.slot(self.used);
        let bytes = u64::from(length) << 32 | u64::from(head);
        let at = place(self.settings.used, entry)?;
        self.memory.write(at, &bytes.to_le_bytes())?;
        self.used = self.used.wrapping_add(1);
        Ok(())
    }

    /// Tell the driver of what was used; whether it is to be interrupted.
    pub fn publish(&mut self) -> Result<bool, Broken> {
        let old = std::mem::replace(&mut self.published, self.used);
        if old == self.used {
            return Ok(false);
        }
        self.store(self.settings.used, ring::INDEX, self.used)?;
        fence(Ordering::SeqCst);
        if !self.event_index {
            return Ok(self.load(self.settings.available, ring::FLAGS)? & NO_INTERRUPT == 0);
        }
        let wanted = self.load(self.settings.available, self.available_end())?;
        // The driver's index lies between the old and the new one (2.7.10.1).
        Ok(self.used.wrapping_sub(wanted).wrapping_sub(1) < self.used.wrapping_sub(old))
    }

    /// While we look by ourselves, we need not be told. With an event index, the last one stands,
    /// which has passed.
    pub fn disarm(&mut self) -> Result<(), Broken> {
        match self.event_index || !self.settings.enabled {
            true => Ok(()),
            false => self.store(self.settings.used, ring::FLAGS, NO_NOTIFY),
        }
    }

    /// Ask to be told of the next chain; whether one has come in the meantime.
    pub fn arm(&mut self) -> Result<bool, Broken> {
        if !self.settings.enabled {
            return Ok(false);
        }
        match self.event_index {
            true => {
                let at = ring::ENTRIES + ring::USED_BYTES * u64::from(self.settings.size);
                self.store(self.settings.used, at, self.next)?;
            }
            false => self.store(self.settings.used, ring::FLAGS, 0)?,
        }
        fence(Ordering::SeqCst);
        self.look()
    }

    fn slot(&self, index: u16) -> u64 {
        u64::from(index & (self.settings.size - 1))
    }

    fn available_end(&self) -> u64 {
        ring::ENTRIES + ring::AVAILABLE_BYTES * u64::from(self.settings.size)
    }

    fn load(&self, ring: u64, at: u64) -> Result<u16, Broken> {
        Ok(self.memory.load(place(ring, at)?)?)
    }

    fn store(&self, ring: u64, at: u64, value: u16) -> Result<(), Broken> {
        Ok(self.memory.store(place(ring, at)?, value)?)
    }
}

fn place(start: u64, at: u64) -> Result<GuestAddress, Broken> {
    start.checked_add(at).map(GuestAddress).ok_or(Broken::NoMemory)
}

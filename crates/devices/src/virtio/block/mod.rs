//! A disk. Its backend (a [`BlockBackend`]) keeps its bytes, and moves them between itself and guest memory.
//!
//! Requests are looked at in batches: neighbours that continue each other on the disk become one
//! [`Job`], and all that is done by then is answered by one interrupt at most. A job is done at once or
//! goes on elsewhere, while others are started; the driver is told of each as it ends, in any order
//! (5.2.6.2 promises none). What fails together is tried again one by one, so that each request is told
//! how it went.
//!
//! There may be several queues ([`lane`]), one for each processor, so that each of them is interrupted for what
//! it has asked for itself. A flush covers every write that the driver was told of before, through whichever
//! queue: when a write is answered, the backend has it, and a flush is one of the backend.
//!
//! A driver that does not negotiate flushing expects what it has written to stay (5.2.6.2): then every
//! write is followed by a flush.

mod backend;
mod bits;
mod lane;
mod medium;
mod request;
#[cfg(test)]
mod tests;

pub use backend::{BlockBackend, Failed, Job, Ticket};
pub use bits::SECTOR_BYTES;
use bits::{CLASS, Features, NUMBER, QUEUE_SIZE, configuration};
use lane::Lane;
use medium::Medium;

use super::{Broken, Device, Kind, Serving};
use crate::limits::{MAX_BLOCK_DISCARD_BYTES, MAX_BLOCK_QUEUES};

/// What it is.
pub const KIND: Kind = Kind { name: "virtio-blk", number: NUMBER, class: CLASS };

/// The device.
pub struct Block {
    medium: Medium,
    lanes: Vec<Lane>,
    queue_sizes: Vec<u16>,
}

impl Block {
    /// A disk whose bytes are there, with so many queues, 1 to [`MAX_BLOCK_QUEUES`].
    pub fn new(backend: Box<dyn BlockBackend>, queues: usize) -> Self {
        let queues = queues.clamp(1, MAX_BLOCK_QUEUES);
        Self {
            medium: Medium { backend, writes_through: true },
            lanes: (0..queues).map(Lane::new).collect(),
            queue_sizes: vec![QUEUE_SIZE; queues],
        }
    }
}

impl Device for Block {
    fn kind(&self) -> Kind {
        KIND
    }

    fn features(&self) -> u64 {
        let backend = &self.medium.backend;
        let always = Features::SEGMENTS | Features::BLOCK_SIZE | Features::FLUSH;
        let mut features = always | Features::TOPOLOGY;
        features.set(Features::READ_ONLY, backend.is_read_only());
        let discards = backend.can_discard() && !backend.is_read_only();
        features.set(Features::DISCARD | Features::WRITE_ZEROES, discards);
        features.set(Features::MULTIQUEUE, self.lanes.len() > 1);
        features.bits()
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn configuration(&self) -> Vec<u8> {
        let discard = (MAX_BLOCK_DISCARD_BYTES / SECTOR_BYTES) as u32;
        let sectors = self.medium.backend.bytes() / SECTOR_BYTES;
        configuration(sectors, discard, self.lanes.len() as u16)
    }

    fn activate(&mut self, features: u64) {
        self.medium.writes_through = features & Features::FLUSH.bits() == 0;
    }

    fn serve(&mut self, queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        match self.lanes.get_mut(queue) {
            Some(lane) => lane.serve(&mut self.medium, serving),
            None => Ok(()),
        }
    }

    fn is_idle(&mut self) -> bool {
        self.lanes.iter_mut().for_each(|lane| lane.forget_ended(&mut self.medium));
        !self.is_at_work()
    }

    fn is_at_work(&self) -> bool {
        self.lanes.iter().any(Lane::is_at_work)
    }

    fn reset(&mut self) {
        self.medium.writes_through = true;
        self.lanes.iter_mut().for_each(Lane::reset);
    }
}

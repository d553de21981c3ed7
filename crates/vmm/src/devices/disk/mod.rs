//! Disks: the image that keeps a virtio disk's bytes ([`Image`]), the I/O threads that move them between the image and
//! guest memory ([`pool`]), and the I/O that vCPUs' threads complete themselves ([`errands`]).
//!
//! The program that configures the machine opens the image, with every file that it refers to: a running machine opens
//! nothing. Several threads use an image at once.

mod buffers;
pub(crate) mod errands;
mod image;
mod joined;
mod overlay;
pub(crate) mod pool;
mod qcow2;
mod raw;
mod reading;
#[cfg(test)]
mod tests;
pub(crate) mod thresholds;

use std::sync::Arc;

use devices::limits::MAX_BLOCK_QUEUES;
use devices::virtio::block::{self, Block};

use super::split::SplitDisk;
use super::{Device, Slots};
use crate::limits::MAX_PROCESSORS;
use crate::outcome::Error;
use pool::{Backend, Pool, PoolThreads};

pub use buffers::Buffers;
pub use image::{Complain, Disk, Extent, Image, SECTOR_BYTES};
pub use joined::Joined;
pub use overlay::Overlay;
pub use qcow2::{Error as Qcow2Error, Named, Qcow2};
pub use raw::{QCOW2_MAGIC, Raw};
pub use reading::Reading;

// A disk has a queue for each processor.
const _: () = assert!(MAX_PROCESSORS <= MAX_BLOCK_QUEUES);

impl Device for Disk {
    fn kind(&self) -> &'static str {
        block::KIND.name
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        if slots.board().has_split_devices() {
            let index = slots.plugged.split_disks;
            slots.plugged.split_disks += 1;
            let device = SplitDisk::new(*self, index, slots.memory.clone());
            return Ok(slots.board().add_split(Box::new(device))?);
        }
        if !self.extents.is_empty() {
            return Err(Error::Extents);
        }
        // Each vCPU is to be interrupted for what it has asked for, and by nothing else.
        let queues = slots.processors();
        let rung = slots.plugged.polled.disks.rung();
        let pool = Pool::new(*self, slots.memory.clone(), rung);
        let device = Box::new(Block::new(Box::new(Backend(Arc::clone(&pool))), queues));
        let (shared, slot) = slots.add_virtio_in_slot(device, Arc::clone(&pool) as _)?;
        slots.plugged.disks.push(slot);
        slots.keep(PoolThreads::start(Arc::clone(&pool), &shared)?);
        slots.plugged.polled.disks.add(pool, shared);
        Ok(())
    }
}

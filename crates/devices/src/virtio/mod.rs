//! Virtio 1.2 devices on the PCI bus, without legacy interfaces.
//!
//! The parts, and the threads that run them:
//!
//! ```text
//!  guest's driver ── registers ──> Transport      a vCPU's thread, under the chip set's lock
//!        │                             │
//!        │                          Doorbell ──> the device's own thread ──> Shared::serve
//!        └────── rings in memory ──────────────────────────────────────────> Queue, Device
//! ```
//!
//! 1. *A vCPU's thread never waits for a device.* It rings the doorbell and goes on. What it shares with the device's
//!    thread is atomic, but for the engine (device and queues), which the device's thread locks as long as it serves. A
//!    reset that finds the engine locked is carried out when the guest reads the status again, which it does until the
//!    status is zero (2.1.2, 4.1.4.3.1). A vCPU's thread may serve a device that no other thread is serving
//!    (`Shared::try_serve`).
//! 2. *Everything in guest memory is an allegation*, and may change at any time: a descriptor is read once, and then
//!    checked. A malformed queue stops its device until the driver resets it (`DEVICE_NEEDS_RESET`); no other device is
//!    affected.
//! 3. *Work is done in batches*: a device takes what is queued, completes all of it, and interrupts once, if the driver
//!    wants it (event index). While it works it suppresses notifications.
//! 4. *Data is not copied* where the host can move it itself: a back-end is given [`Segment`]s of guest memory. A
//!    back-end that writes them reports that to the vCPUs before the used ring is published, as
//!    [`Memory`](machine::memory::Memory) does for what is written through it.
//!
//! The ring is not that of the `virtio-queue` crate, because that one writes to memory that code may have been
//! translated from without a report, and trusts lengths that this one checks as it reads the chain.

pub mod balloon;
pub mod block;
pub mod console;
pub mod entropy;
pub mod file_system;
pub mod network;
pub mod port;
mod queue;
#[cfg(test)]
mod rig;
pub mod socket;
mod transport;

use std::ops::Range;

use machine::memory::{Memory, NoMemory};
use machine::saved::{self, Unfit};
use vm_memory::GuestAddress;

pub use queue::{Broken, Chain, Segment};
pub use transport::{Serving, Shared, Transport};

/// What a device is to the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name, which its saved state has (QEMU has the same).
    pub name: &'static str,
    /// The virtio device type (5).
    pub number: u16,
    /// The PCI class.
    pub class: u32,
}

/// A device behind the transport.
pub trait Device: Send {
    /// What it is.
    fn kind(&self) -> Kind;

    /// Its own features, of those below 24 and above 49.
    fn features(&self) -> u64;

    /// The most descriptors of each of its queues, powers of two.
    fn queue_sizes(&self) -> &[u16];

    /// Its configuration space; [`Serving::configure`] changes it.
    fn configuration(&self) -> Vec<u8> {
        Vec::new()
    }

    /// What of that the driver may write; [`Shared::read_configuration`] says what it has.
    fn writable_configuration(&self) -> Range<usize> {
        0..0
    }

    /// The driver is ready, and has accepted these features.
    fn activate(&mut self, features: u64);

    /// Do what there is to do in a queue. Called on the device's thread.
    ///
    /// # Errors
    ///
    /// [`Broken`] when the driver has broken the rules; the device stops.
    fn serve(&mut self, queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken>;

    /// Whether no thread is at work for it outside of [`Self::serve`]. Only then it is reset; a thread that
    /// finishes such work calls [`Shared::serve`] or [`Shared::settle`].
    fn is_idle(&mut self) -> bool {
        true
    }

    /// As before [`Self::activate`].
    fn reset(&mut self);

    /// Whether chains are neither finished nor among those that [`Self::taken`] counts.
    fn is_at_work(&self) -> bool {
        false
    }

    /// How many chains were taken from a queue that will be finished in that order, and before any others.
    /// The device that goes on from the saved state takes them again.
    fn taken(&self, queue: usize) -> u16 {
        let _ = queue;
        0
    }

    /// What a device that goes on from here has to know, when it is not at work ([`machine::saved`]).
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The newest version of that; [`Self::restore`] is given any from 1 up to it.
    fn version(&self) -> u32 {
        1
    }

    /// Go on from there, after [`Self::activate`].
    ///
    /// # Errors
    ///
    /// [`Unfit`] when that is no state of such a device.
    fn restore(&mut self, version: u32, state: &[u8]) -> Result<(), Unfit> {
        saved::check(version == 1 && state.is_empty(), self.kind().name)
    }

    /// Whether a driver that has seen this configuration space can go on with ours.
    fn accepts(&self, configuration: &[u8]) -> bool {
        configuration == self.configuration()
    }
}

/// Brings a device's thread to call [`Shared::serve`]; from any thread, without waiting.
pub trait Doorbell: Send + Sync {
    /// There is something in a queue.
    fn ring(&self, queue: usize);
}

/// Fill guest memory at `segments` with `bytes`; how many there was room for.
///
/// # Errors
///
/// [`NoMemory`] when a segment is none; part of them may have been written.
pub fn scatter(
    memory: &dyn Memory,
    segments: &[Segment],
    mut bytes: &[u8],
) -> Result<u32, NoMemory> {
    let mut done = 0;
    for segment in segments {
        let (now, rest) = bytes.split_at(bytes.len().min(segment.length as usize));
        memory.write(GuestAddress(segment.address), now)?;
        done += now.len() as u32;
        bytes = rest;
    }
    Ok(done)
}

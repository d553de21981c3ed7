//! A balloon: the guest's driver gives pages, which the host has for itself until the driver takes them
//! back, and reports pages that are free, which come back as zeroes when they are used again. Who gives
//! memory to the host is a [`Host`]; who wants how much is behind it.
//!
//! 1. *A page that is given is gone at once*, whatever it has been: a driver that gives what it uses
//!    reads zeroes there. So it needs to ask nobody to take one back (5.5.6.1).
//! 2. *Only whole pages go.* What a driver says of parts of pages is not believed.
//! 3. *Statistics are asked for by giving their buffer back* (5.5.6.3), of which the driver has one.

mod bits;
#[cfg(test)]
mod tests;

use std::ops::Range;

use machine::memory::Memory;
use machine::saved::{self, Unfit};
use vm_memory::GuestAddress;

use bits::{
    CLASS, DEFLATE, Features, INFLATE, NUMBER, NUMBER_BYTES, QUEUE_SIZES, configuration, statistic,
};

use super::{Broken, Chain, Device, Kind, Segment, Serving};
use crate::limits::{MAX_BALLOON_PAGES, MAX_BALLOON_STATISTICS};

pub use bits::{PAGE_BYTES, configuration::ACTUAL};

/// What it is.
pub const KIND: Kind = Kind { name: "virtio-balloon", number: NUMBER, class: CLASS };

/// What a guest says of its memory; nothing where it says nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes read from its swap space.
    pub swapped_in: Option<u64>,
    /// Bytes written there.
    pub swapped_out: Option<u64>,
    /// Page faults that waited for a disk.
    pub major_faults: Option<u64>,
    /// Page faults that did not.
    pub minor_faults: Option<u64>,
    /// Bytes that are not in use.
    pub free: Option<u64>,
    /// Bytes that it has.
    pub total: Option<u64>,
    /// Bytes that programs could have without swapping.
    pub available: Option<u64>,
    /// Bytes of files that could be read again.
    pub caches: Option<u64>,
}

impl Statistics {
    fn set(&mut self, what: u16, value: u64) {
        let place = match what {
            statistic::SWAPPED_IN => &mut self.swapped_in,
            statistic::SWAPPED_OUT => &mut self.swapped_out,
            statistic::MAJOR_FAULTS => &mut self.major_faults,
            statistic::MINOR_FAULTS => &mut self.minor_faults,
            statistic::FREE => &mut self.free,
            statistic::TOTAL => &mut self.total,
            statistic::AVAILABLE => &mut self.available,
            statistic::CACHES => &mut self.caches,
            // Those that later kernels have.
            _ => return,
        };
        *place = Some(value);
    }
}

/// Why pages go to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The driver was told to give some.
    Given,
    /// They are free just now.
    Free,
}

/// The back-end of a balloon, which has the guest's memory.
pub trait Host: Send {
    /// How many pages the driver is to give, as it is now. A change is followed by a ring for queue 0.
    fn wanted_pages(&self) -> u32;

    /// The driver was told to give so many, before the machine went on from a snapshot.
    fn want_pages(&mut self, pages: u32);

    /// Take memory at these guest-physical addresses: whole pages, of which some may be none. They read
    /// as zeroes from now on, and the processors know.
    fn take(&mut self, addresses: Range<u64>, reason: Reason);

    /// Whether the statistics are wanted, once. A wish is followed by a ring for queue 0.
    fn wants_statistics(&mut self) -> bool;

    /// They are these.
    fn tell(&mut self, statistics: Statistics);
}

/// What a driver knows and the host does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// The features that it has accepted.
    pub accepted: u64,
    /// Its buffer for statistics, if we have it.
    pub statistics: Option<u16>,
    /// They are wanted, and there is no buffer to ask the driver with.
    pub is_asked: bool,
}

/// The device.
pub struct Balloon {
    host: Box<dyn Host>,
    state: State,
}

impl Balloon {
    /// A balloon whose memory is the host's.
    pub fn new(host: Box<dyn Host>) -> Self {
        Self { host, state: State::default() }
    }

    fn has(&self, feature: Features) -> bool {
        self.state.accepted & feature.bits() != 0
    }

    /// What is beyond the two queues that are always there: those of features that were not accepted are
    /// not counted, as Linux has it.
    fn is_statistics(&self, queue: usize) -> bool {
        self.has(Features::STATISTICS) && queue == DEFLATE + 1
    }

    fn is_reporting(&self, queue: usize) -> bool {
        let first = DEFLATE + 1 + usize::from(self.has(Features::STATISTICS));
        self.has(Features::REPORTING) && queue == first
    }

    /// Pages by their numbers: they go to the host if they are `given`, and need nothing otherwise.
    fn take_pages(&mut self, serving: &mut Serving<'_>, given: bool) -> Result<(), Broken> {
        let mut chain = Chain::default();
        while serving.pop(&mut chain)? {
            let count = Chain::bytes(&chain.readable) / NUMBER_BYTES as u64;
            let count = count.min(MAX_BALLOON_PAGES as u64) as usize;
            if given {
                let mut numbers = numbers(serving.memory(), &chain.readable, count)?;
                // Neighbours go together.
                numbers.sort_unstable();
                numbers.dedup();
                for run in numbers.chunk_by(|one, next| one + 1 == *next) {
                    let start = run[0] * PAGE_BYTES;
                    self.host.take(start..start + run.len() as u64 * PAGE_BYTES, Reason::Given);
                }
            }
            serving.finish(chain.head, 0)?;
        }
        Ok(())
    }

    /// Pages that are free, as what could be written (5.5.6.7).
    fn take_free(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        while serving.pop(&mut chain)? {
            for Segment { address, length } in chain.writable.iter().copied() {
                let end = address.saturating_add(length.into());
                let start = address.checked_next_multiple_of(PAGE_BYTES).unwrap_or(end);
                let end = end - end % PAGE_BYTES;
                if start < end {
                    self.host.take(start..end, Reason::Free);
                }
            }
            serving.finish(chain.head, 0)?;
        }
        Ok(())
    }

    /// The driver has new statistics, and we its buffer.
    fn take_statistics(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        while serving.pop(&mut chain)? {
            // A driver with several buffers has those back that are not needed.
            if let Some(before) = self.state.statistics.replace(chain.head) {
                serving.finish(before, 0)?;
            }
            self.host.tell(statistics(serving.memory(), &chain.readable)?);
        }
        if self.state.is_asked
            && let Some(head) = self.state.statistics.take()
        {
            self.state.is_asked = false;
            serving.finish(head, 0)?;
        }
        Ok(())
    }
}

/// The beginning of what lies in guest memory at `segments`.
fn gather(memory: &dyn Memory, segments: &[Segment], most: usize) -> Result<Vec<u8>, Broken> {
    let mut bytes = Vec::new();
    for segment in segments {
        let start = bytes.len();
        bytes.resize(most.min(start + segment.length as usize), 0);
        memory.read(GuestAddress(segment.address), &mut bytes[start..])?;
    }
    Ok(bytes)
}

fn numbers(memory: &dyn Memory, segments: &[Segment], count: usize) -> Result<Vec<u64>, Broken> {
    let bytes = gather(memory, segments, count * NUMBER_BYTES)?;
    let number = |bytes: &[u8; NUMBER_BYTES]| u64::from(u32::from_le_bytes(*bytes));
    Ok(bytes.as_chunks().0.iter().map(number).collect())
}

fn statistics(memory: &dyn Memory, segments: &[Segment]) -> Result<Statistics, Broken> {
    let bytes = gather(memory, segments, MAX_BALLOON_STATISTICS * statistic::BYTES)?;
    let mut all = Statistics::default();
    for &[w0, w1, v0, v1, v2, v3, v4, v5, v6, v7] in bytes.as_chunks().0 {
        let value = u64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]);
        all.set(u16::from_le_bytes([w0, w1]), value);
    }
    Ok(all)
}

impl Device for Balloon {
    fn kind(&self) -> Kind {
        KIND
    }

    fn features(&self) -> u64 {
        (Features::STATISTICS | Features::DEFLATE_ON_OOM | Features::REPORTING).bits()
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn configuration(&self) -> Vec<u8> {
        let mut space = self.host.wanted_pages().to_le_bytes().to_vec();
        space.resize(configuration::BYTES, 0);
        space
    }

    fn writable_configuration(&self) -> Range<usize> {
        configuration::ACTUAL
    }

    fn activate(&mut self, features: u64) {
        self.state.accepted = features;
    }

    fn serve(&mut self, queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        self.state.is_asked |= self.host.wants_statistics();
        let wanted = self.host.wanted_pages().to_le_bytes();
        serving.configure(configuration::WANTED, &wanted);
        match queue {
            INFLATE => self.take_pages(serving, true),
            DEFLATE => self.take_pages(serving, false),
            _ if self.is_statistics(queue) => self.take_statistics(serving),
            _ if self.is_reporting(queue) => self.take_free(serving),
            _ => Ok(()),
        }
    }

    fn taken(&self, queue: usize) -> u16 {
        u16::from(self.is_statistics(queue) && self.state.statistics.is_some())
    }

    fn save(&self) -> Vec<u8> {
        saved::encode(&self.host.wanted_pages())
    }

    fn restore(&mut self, _: u32, state: &[u8]) -> Result<(), Unfit> {
        self.host.want_pages(saved::decode(state, "a balloon")?);
        Ok(())
    }

    fn accepts(&self, configuration: &[u8]) -> bool {
        configuration.len() == configuration::BYTES
    }

    fn reset(&mut self) {
        self.state = State::default();
    }
}

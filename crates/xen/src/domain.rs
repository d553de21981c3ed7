//! What the vCPUs of a domain share.

use std::sync::{Arc, Mutex, MutexGuard};

use frames::{FrameRecord, Frames};
use locks::Unpoisoned;
use machine::board::{self, Surroundings};
use machine::time::Clock;
use machine::{Requests, Wake};

use crate::geometry::{self, Geometry};
use crate::memory::MachineMemory;

/// A domain, apart from its devices.
pub struct Domain {
    pub(crate) geometry: Geometry,
    pub(crate) memory: MachineMemory,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wake: Arc<dyn Wake>,
    pub(crate) requests: Requests,
    /// How many vCPUs it may have.
    pub(crate) processors: usize,
    /// A record for each machine frame from [`geometry::BASE`] on.
    records: Box<[FrameRecord]>,
    /// What validation of page tables remembers.
    tables: Mutex<frames::State>,
}

impl Domain {
    /// A domain without memory of its own yet.
    pub(crate) fn new(config: board::Config, surroundings: Surroundings) -> Self {
        let geometry = Geometry::fixed(config.memory_bytes >> xen_abi::PAGE_SHIFT);
        let count = usize::try_from(geometry.records()).unwrap_or(usize::MAX);
        Self {
            geometry,
            memory: MachineMemory::new(surroundings.memory),
            clock: surroundings.clock,
            wake: surroundings.wake,
            requests: Requests::default(),
            processors: config.processors,
            records: std::iter::repeat_with(FrameRecord::default).take(count).collect(),
            tables: Mutex::default(),
        }
    }

    /// The frames' types and counts.
    pub(crate) fn frames(&self) -> Frames<'_> {
        Frames::new(geometry::BASE, &self.records)
    }

    /// The lock of page tables.
    pub(crate) fn tables(&self) -> MutexGuard<'_, frames::State> {
        self.tables.lock().unpoisoned()
    }
}

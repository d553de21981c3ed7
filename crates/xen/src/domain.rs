//! What the vCPUs of a domain share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use frames::{FrameRecord, Frames};
use locks::Unpoisoned;
use machine::board::{self, Surroundings};
use machine::time::Clock;
use machine::{Requests, Wake};

use xen_abi::Mfn;

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
    /// What `vm_assist` has switched on.
    assists: AtomicU64,
    /// The frames of each vCPU's GDT, which are in use as such.
    gdts: Mutex<Vec<Vec<Mfn>>>,
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
            assists: AtomicU64::new(0),
            gdts: Mutex::new(vec![Vec::new(); config.processors]),
        }
    }

    /// The frames' types and counts.
    pub(crate) fn frames(&self) -> Frames<'_> {
        Frames::new(geometry::BASE, &self.records)
    }

    /// What `vm_assist` has switched on.
    pub(crate) fn assists(&self) -> u64 {
        self.assists.load(Ordering::SeqCst)
    }

    /// Switch assists; what is on then.
    pub(crate) fn change_assists(&self, change: impl Fn(u64) -> u64) -> u64 {
        let order = Ordering::SeqCst;
        // The closure always gives a value, so that it comes to an end with one.
        let _ = self.assists.fetch_update(order, order, |assists| Some(change(assists)));
        self.assists()
    }

    /// Note the frames of a vCPU's GDT; which they were.
    pub(crate) fn replace_gdt(&self, vcpu: usize, frames: Vec<Mfn>) -> Vec<Mfn> {
        let mut gdts = self.gdts.lock().unpoisoned();
        gdts.get_mut(vcpu).map(|gdt| std::mem::replace(gdt, frames)).unwrap_or_default()
    }

    /// The lock of page tables.
    pub(crate) fn tables(&self) -> MutexGuard<'_, frames::State> {
        self.tables.lock().unpoisoned()
    }
}

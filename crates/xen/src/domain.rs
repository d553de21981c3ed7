//! What the vCPUs of a domain share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use frames::{FrameRecord, Frames};
use locks::Unpoisoned;
use machine::board::{self, Surroundings};
use machine::time::Clock;
use machine::{Requests, Wake};

use xen_abi::Mfn;
use xen_io::MachineAddress;

use crate::clock::DomainTime;
use crate::geometry::{self, Geometry};
use crate::memory::MachineMemory;
use crate::ports::Events;
use crate::services::{Line, Services};
use crate::vcpus::Vcpus;

/// A domain, apart from its devices.
pub(crate) struct Domain {
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
    /// No frame below this number is free.
    first_free: Mutex<u64>,
    pub(crate) events: Events,
    pub(crate) vcpus: Vcpus,
    time: Mutex<DomainTime>,
    /// The first console's end on the host, and that of the hypervisor's.
    pub(crate) line: Line,
    services: Mutex<Option<Arc<Services>>>,
}

impl Domain {
    /// A domain without memory of its own yet.
    pub(crate) fn new(config: board::Config, surroundings: Surroundings) -> Self {
        let geometry = Geometry::fixed(config.memory_bytes >> xen_abi::PAGE_SHIFT);
        let count = usize::try_from(geometry.records()).unwrap_or(usize::MAX);
        Self {
            geometry,
            memory: MachineMemory::new(surroundings.memory),
            clock: Arc::clone(&surroundings.clock),
            wake: surroundings.wake,
            requests: Requests::default(),
            processors: config.processors,
            records: std::iter::repeat_with(FrameRecord::default).take(count).collect(),
            tables: Mutex::default(),
            assists: AtomicU64::new(0),
            gdts: Mutex::new(vec![Vec::new(); config.processors]),
            first_free: Mutex::new(geometry::BASE.0),
            events: Events::new(),
            vcpus: Vcpus::new(config.processors, &geometry),
            time: Mutex::new(DomainTime::new(&*surroundings.clock)),
            line: Line::default(),
            services: Mutex::default(),
        }
    }

    /// As before its start: no vCPU runs, and its memory is zero. What its lines are connected to remains.
    pub(crate) fn reset(&self) {
        self.frames().clear();
        *self.tables() = frames::State::default();
        self.assists.store(0, Ordering::SeqCst);
        self.gdts.lock().unpoisoned().iter_mut().for_each(Vec::clear);
        *self.reservation() = geometry::BASE.0;
        self.events.clear();
        self.vcpus.clear(&self.geometry);
        *self.time() = DomainTime::new(&*self.clock);
        *self.services() = None;
        self.requests.take();
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

    /// The number below which no frame is free. Who holds it gives and takes frames.
    pub(crate) fn reservation(&self) -> MutexGuard<'_, u64> {
        self.first_free.lock().unpoisoned()
    }

    /// Time as the domain sees it.
    pub(crate) fn time(&self) -> MutexGuard<'_, DomainTime> {
        self.time.lock().unpoisoned()
    }

    /// What serves the domain's rings, once it has started.
    pub(crate) fn services(&self) -> MutexGuard<'_, Option<Arc<Services>>> {
        self.services.lock().unpoisoned()
    }

    /// The lock of page tables.
    pub(crate) fn tables(&self) -> MutexGuard<'_, frames::State> {
        self.tables.lock().unpoisoned()
    }
}

impl xen_io::Memory for Domain {
    fn read(&self, at: MachineAddress, bytes: &mut [u8]) -> Result<(), xen_io::NoMemory> {
        self.memory.read(at, bytes)
    }

    fn write(&self, at: MachineAddress, bytes: &[u8]) -> Result<(), xen_io::NoMemory> {
        self.memory.write(at, bytes)
    }

    fn load_word(&self, at: MachineAddress) -> Result<u64, xen_io::NoMemory> {
        self.memory.load_word(at)
    }

    fn change_word(
        &self,
        at: MachineAddress,
        change: &mut dyn FnMut(&AtomicU64),
    ) -> Result<(), xen_io::NoMemory> {
        self.memory.change_word(at, change)
    }
}

impl xen_io::Domain for Domain {
    fn frames(&self) -> Frames<'_> {
        Domain::frames(self)
    }

    fn grant_frame(&self, number: usize) -> Option<Mfn> {
        let number = number as u64;
        (number < geometry::GRANT_FRAMES).then(|| self.geometry.grant_frame(number))
    }
}

//! What the vCPUs of a domain share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use frames::Frames;
use locks::Unpoisoned;
use machine::board::{self, Surroundings};
use machine::time::Clock;
use machine::{Requests, Wake};

use crate::clock::DomainTime;
use crate::events::Events;
use crate::geometry::Geometry;
use crate::grant_layout::Version;
use crate::grants::GrantTable;
use crate::holding::Reservation;
use crate::memory::{MachineMemory, Owned};
use crate::services::{Bus, Console, StoreService};
use crate::started::Started;
use crate::vcpus::Vcpus;
use xen_abi::Mfn;

/// A domain, apart from its devices.
pub(crate) struct Domain {
    pub(crate) geometry: Geometry,
    pub(crate) memory: MachineMemory,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wake: Arc<dyn Wake>,
    pub(crate) requests: Requests,
    /// How many vCPUs it may have.
    pub(crate) processors: usize,
    /// The memory with its frames' records.
    pub(crate) owned: Arc<Owned>,
    /// What validation of page tables remembers.
    tables: Mutex<frames::State>,
    /// What `vm_assist` has switched on.
    assists: AtomicU64,
    /// The frames of each vCPU's GDT, which are in use as such.
    gdts: Mutex<Vec<Vec<Mfn>>>,
    grants: Mutex<GrantTable>,
    reservation: Mutex<Reservation>,
    pub(crate) events: Events,
    pub(crate) vcpus: Vcpus,
    time: Mutex<DomainTime>,
    /// The first, which is also the hypervisor's, and another that the domain finds on the bus.
    pub(crate) consoles: [Arc<Console>; 2],
    pub(crate) bus: Mutex<Bus>,
    store: Mutex<Option<Arc<StoreService>>>,
    started: Mutex<Option<Started>>,
}

impl Domain {
    /// A domain without memory of its own yet.
    pub(crate) fn new(config: board::Config, surroundings: Surroundings) -> Self {
        let pages = |bytes| bytes >> xen_abi::PAGE_SHIFT;
        let geometry = Geometry::new(pages(config.memory_bytes), pages(config.maximum_bytes));
        let memory = MachineMemory::new(surroundings.memory);
        Self {
            geometry,
            owned: Arc::new(Owned::new(geometry, memory.clone())),
            memory,
            clock: Arc::clone(&surroundings.clock),
            wake: surroundings.wake,
            requests: Requests::default(),
            processors: config.processors,
            tables: Mutex::default(),
            assists: AtomicU64::new(0),
            gdts: Mutex::new(vec![Vec::new(); config.processors]),
            grants: Mutex::new(GrantTable::new()),
            reservation: Mutex::new(Reservation::empty()),
            events: Events::new(),
            vcpus: Vcpus::new(config.processors, &geometry),
            time: Mutex::new(DomainTime::new(&*surroundings.clock)),
            consoles: Default::default(),
            bus: Mutex::default(),
            store: Mutex::default(),
            started: Mutex::default(),
        }
    }

    /// As before its start: no vCPU runs, and its memory is zero. What its lines are connected to remains.
    pub(crate) fn reset(&self) {
        self.end_services();
        self.frames().clear();
        *self.tables() = frames::State::default();
        self.assists.store(0, Ordering::SeqCst);
        self.gdts.lock().unpoisoned().iter_mut().for_each(Vec::clear);
        *self.grants() = GrantTable::new();
        self.owned.set_grant_version(Version::default());
        *self.reservation() = Reservation::empty();
        self.events.clear();
        self.vcpus.clear(&self.geometry);
        *self.time() = DomainTime::new(&*self.clock);
        self.requests.take();
    }

    /// The frames' types and counts.
    pub(crate) fn frames(&self) -> Frames<'_> {
        self.owned.frames()
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

    /// The frames of all GDTs.
    pub(crate) fn gdt_frames(&self) -> Vec<Mfn> {
        self.gdts.lock().unpoisoned().iter().flatten().copied().collect()
    }

    /// Those of each vCPU's, by number.
    pub(crate) fn save_gdts(&self) -> Vec<Vec<u64>> {
        let gdts = self.gdts.lock().unpoisoned();
        gdts.iter().map(|frames| frames.iter().map(|frame| frame.0).collect()).collect()
    }

    /// Its grant table, as far as the domain itself uses it.
    pub(crate) fn grants(&self) -> MutexGuard<'_, GrantTable> {
        self.grants.lock().unpoisoned()
    }

    /// What frames it has. Who holds it gives and takes frames.
    pub(crate) fn reservation(&self) -> MutexGuard<'_, Reservation> {
        self.reservation.lock().unpoisoned()
    }

    /// Time as the domain sees it.
    pub(crate) fn time(&self) -> MutexGuard<'_, DomainTime> {
        self.time.lock().unpoisoned()
    }

    /// The domain's store, once it has started.
    pub(crate) fn store(&self) -> MutexGuard<'_, Option<Arc<StoreService>>> {
        self.store.lock().unpoisoned()
    }

    /// The pages that it shares with its services, once it has started.
    pub(crate) fn started(&self) -> Option<Started> {
        *self.started.lock().unpoisoned()
    }

    /// It shares these, or none any more.
    pub(crate) fn set_started(&self, started: Option<Started>) {
        *self.started.lock().unpoisoned() = started;
    }

    /// The lock of page tables.
    pub(crate) fn tables(&self) -> MutexGuard<'_, frames::State> {
        self.tables.lock().unpoisoned()
    }
}

//! The saved state of a domain: what its memory, its processors and its disks do not say.
//!
//! 1. *Nothing is translated.* Machine frames are private to a domain ([`crate::geometry`]), so that they have the same
//!    numbers where it goes on, and the guest need not help: it sees an interruption of its time, as after a pause.
//! 2. *Counts are not believed.* Of the frames' records only which frames the domain has, and which tables are roots
//!    (pins, base pointers), are saved. All types and counts are found again by validating the tables below the roots,
//!    as they are in memory. A promotion or demotion that was interrupted is not saved: the vCPU asks again.
//! 3. *Back-ends are at rest.* What they had taken from a ring is answered, or is taken again; their grants are taken
//!    again where the domain goes on ([`xen_io::device::BackEnd::resume`]).
//! 4. *Time goes on where it was.* System time is the machine's clock without its origin, and the clock goes on; each
//!    `vcpu_info` gets a new time with a new version, and is told that the machine had stood still.
//! 5. *Everything is an allegation.* What no domain could have is [`Unfit`]; nothing in it reaches the host.

use std::sync::Arc;

use frames::{Frames, Level, Stop, Tables};
use locks::Unpoisoned;
use machine::saved::{Busy, CounterShift, Parts, Unfit, check};
use machine::xen::{SAVED_DOMAIN, SAVED_VCPU};
use serde::{Deserialize, Serialize};
use xen_abi::Mfn;

use crate::clock::DomainTime;
use crate::domain::Domain;
use crate::engine::{Engine, NotRunning};
use crate::events::SavedEvents;
use crate::geometry::{self, Geometry};
use crate::grants::{GrantTable, SavedGrants};
use crate::holding::Reservation;
use crate::services::SavedStore;
use crate::started::Started;
use crate::vcpus::SavedVcpu;

/// The kinds of the parts that the domain's vCPUs share, beside [`SAVED_DOMAIN`].
mod kind {
    pub const TABLES: &str = "xen-page-tables";
    pub const TIME: &str = "xen-time";
    pub const EVENTS: &str = "xen-event-channels";
    pub const GRANTS: &str = "xen-grants";
    pub const STORE: &str = "xenstore";
    pub const DEVICES: &str = "xenbus";
}

/// Frames of a GDT.
const MAX_GDT_FRAMES: usize = 14;

/// What the domain is: what it was made for, what memory it has, and what it shares with its services.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedDomain {
    /// Pages that it started with, and the most that it may have.
    pages: u64,
    maximum: u64,
    /// Its memory: ranges of frames, each a first one and how many.
    owned: Vec<(u64, u64)>,
    assists: u64,
    /// The frames of the store's and the console's rings.
    store: u64,
    console: u64,
}

/// The roots of page tables, and the descriptor tables.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SavedTables {
    /// Pinned tables, each with its level.
    pinned: Vec<(u64, u8)>,
    /// Of each vCPU, the roots of its kernel's and its users' address spaces.
    roots: Vec<(Option<u64>, Option<u64>)>,
    /// Of each vCPU, the frames of its GDT.
    gdts: Vec<Vec<u64>>,
}

/// Consecutive frames as ranges.
fn ranges(frames: impl Iterator<Item = Mfn>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for frame in frames {
        match ranges.last_mut() {
            Some((first, count)) if *first + *count == frame.0 => *count += 1,
            _ => ranges.push((frame.0, 1)),
        }
    }
    ranges
}

fn level(number: u8) -> Option<Level> {
    [Level::L1, Level::L2, Level::L3, Level::L4].into_iter().find(|level| *level as u8 == number)
}

impl Domain {
    /// Bring devices and consoles to rest until [`Self::thaw`], and say what all vCPUs share. No vCPU runs.
    pub(crate) fn save(&self) -> Result<Vec<u8>, Busy> {
        let (Some(started), Some(store)) = (self.started(), self.store().clone()) else {
            return Err(Busy);
        };
        let mut bus = self.bus.lock().unpoisoned();
        self.consoles[0].freeze();
        if !bus.freeze() {
            bus.thaw();
            self.consoles[0].thaw();
            return Err(Busy);
        }
        let mut parts = Parts::default();
        let domain = SavedDomain {
            pages: self.geometry.pages,
            maximum: self.geometry.maximum,
            owned: ranges(self.frames().owned()),
            assists: self.assists(),
            store: started.store.0,
            console: started.console.0,
        };
        parts.add(SAVED_DOMAIN, 1, &domain);
        parts.add(kind::TABLES, 1, &self.save_tables());
        parts.add(kind::TIME, 1, &*self.time());
        parts.add(kind::EVENTS, 1, &self.events.save());
        parts.add(kind::GRANTS, 1, &self.grants().save(&self.owned));
        parts.add(kind::STORE, 1, &store.save());
        parts.add(kind::DEVICES, 1, &bus.list());
        Ok(parts.to_bytes())
    }

    /// Let devices and consoles go on.
    pub(crate) fn thaw(&self) {
        self.bus.lock().unpoisoned().thaw();
        self.consoles[0].thaw();
    }

    /// What a vCPU says, after [`Self::save`].
    pub(crate) fn save_own(&self, number: usize) -> Vec<u8> {
        let mut parts = Parts::default();
        parts.add(SAVED_VCPU, 1, &self.save_vcpu(number));
        parts.to_bytes()
    }

    fn save_tables(&self) -> SavedTables {
        let state = self.tables();
        let pinned = self.frames().pinned().filter_map(|(frame, frame_type)| {
            Level::of_type(frame_type).map(|level| (frame.0, level as u8))
        });
        let root = |frame: Option<Mfn>| frame.map(|frame| frame.0);
        let roots = (0..self.processors)
            .map(|number| (root(state.base(number)), root(state.user_base(number))));
        SavedTables { pinned: pinned.collect(), roots: roots.collect(), gdts: self.save_gdts() }
    }

    /// Go on from there: memory is as it was then, and nothing runs yet.
    pub(crate) fn restore(
        self: &Arc<Self>,
        shared: &[u8],
        vcpus: &[Vec<u8>],
        shift: CounterShift,
    ) -> Result<(), Unfit> {
        let mut parts = Parts::from_bytes(shared, "the domain")?;
        check(vcpus.len() == self.processors, "the processors")?;
        let domain: SavedDomain = parts.take(SAVED_DOMAIN)?;
        let is_same =
            domain.pages == self.geometry.pages && domain.maximum == self.geometry.maximum;
        check(is_same, "the domain's memory")?;
        let grants: SavedGrants = parts.take(kind::GRANTS)?;
        self.restore_frames(&domain, &grants)?;
        self.restore_tables(parts.take(kind::TABLES)?)?;
        *self.grants() = GrantTable::restored(&grants, &self.owned)
            .map_err(|_| Unfit::State("the grant table".into()))?;
        self.change_assists(|_| domain.assists);
        *self.time() = parts.take::<DomainTime>(kind::TIME)?.moved(shift);
        let events: SavedEvents = parts.take(kind::EVENTS)?;
        self.restore_events(&events).map_err(|_| Unfit::State("the event channels".into()))?;
        for (number, bytes) in vcpus.iter().enumerate() {
            self.restore_own(number, bytes)?;
        }
        let store: SavedStore = parts.take(kind::STORE)?;
        let devices: Vec<(String, u32)> = parts.take(kind::DEVICES)?;
        parts.finish()?;
        self.check_devices(devices)?;
        let started = Started { store: Mfn(domain.store), console: Mfn(domain.console) };
        self.resume_services(started, store)
            .map_err(|reason| Unfit::State(format!("a device ({reason})")))?;
        self.write_wall_clock();
        (0..self.processors).for_each(|number| self.write_time_after_stop(number));
        Ok(())
    }

    /// The domain's frames are those that it had.
    fn restore_frames(&self, domain: &SavedDomain, grants: &SavedGrants) -> Result<(), Unfit> {
        let unfit = || Unfit::State("the domain's memory".into());
        let (frames, geometry) = (self.frames(), &self.geometry);
        for (first, count) in &domain.owned {
            let last = first.checked_add(count.saturating_sub(1)).ok_or_else(unfit)?;
            if !geometry.is_memory(Mfn(*first)) || !geometry.is_memory(Mfn(last)) {
                return Err(unfit());
            }
            (*first..=last).try_for_each(|frame| frames.assign(Mfn(frame))).map_err(|_| unfit())?;
        }
        geometry.assign_special(frames).map_err(|_| unfit())?;
        grants.assign_status(&self.owned).map_err(|_| Unfit::State("the grant table".into()))?;
        *self.reservation() = Reservation::of(&self.owned);
        Ok(())
    }

    /// Validate all tables below the roots, and hold what the descriptor tables are in.
    fn restore_tables(&self, saved: SavedTables) -> Result<(), Unfit> {
        let unfit = || Unfit::State("the page tables".into());
        let SavedTables { pinned, roots, gdts } = saved;
        let is_sane = roots.len() == self.processors
            && gdts.len() == self.processors
            && gdts.iter().all(|frames| frames.len() <= MAX_GDT_FRAMES);
        if !is_sane {
            return Err(unfit());
        }
        let mut engine = Engine { domain: self, cpu: NotRunning };
        let mut state = self.tables();
        let mut tables = Tables::new(self.frames(), &mut state, &mut engine, 0);
        let mut operations = Vec::new();
        for (frame, number) in pinned {
            operations.push(Root::Pinned(Mfn(frame), level(number).ok_or_else(unfit)?));
        }
        for (vcpu, (kernel, user)) in roots.into_iter().enumerate() {
            operations.extend(kernel.map(|frame| Root::Kernel(vcpu, Mfn(frame))));
            operations.extend(user.map(|frame| Root::User(vcpu, Mfn(frame))));
        }
        // A table that names one of its own level (a linear entry) can be validated only after that one. What is named
        // so names none itself.
        operations.retain(|root| root.take(&mut tables).is_err());
        for root in operations {
            root.take(&mut tables).map_err(|_| unfit())?;
        }
        for (number, frames) in gdts.into_iter().enumerate() {
            let frames: Vec<_> = frames.into_iter().map(Mfn).collect();
            let mut taken = frames.iter().map(|frame| tables.take_descriptors(*frame));
            taken.try_for_each(|taken| taken).map_err(|_| unfit())?;
            self.replace_gdt(number, frames);
        }
        Ok(())
    }

    fn restore_own(&self, number: usize, bytes: &[u8]) -> Result<(), Unfit> {
        let mut parts = Parts::from_bytes(bytes, "a vCPU")?;
        let vcpu: SavedVcpu = parts.take(SAVED_VCPU)?;
        parts.finish()?;
        self.restore_vcpu(number, vcpu).map_err(|_| Unfit::State("a vCPU".into()))
    }

    /// The machine has the devices that the domain had, and no other.
    fn check_devices(&self, saved: Vec<(String, u32)>) -> Result<(), Unfit> {
        let here = self.bus.lock().unpoisoned().list();
        let name = |(kind, number): &(String, u32)| format!("{kind} {number}");
        if let Some(missing) = here.iter().find(|device| !saved.contains(device)) {
            return Err(Unfit::Missing(name(missing)));
        }
        match saved.into_iter().find(|device| !here.contains(device)) {
            Some((kind, _)) => Err(Unfit::Unknown { kind, version: 1 }),
            None => Ok(()),
        }
    }
}

/// A use of a page table that no other table is.
enum Root {
    Pinned(Mfn, Level),
    Kernel(usize, Mfn),
    User(usize, Mfn),
}

impl Root {
    fn take(&self, tables: &mut Tables<'_, Engine<'_, NotRunning>>) -> Result<(), Stop> {
        match *self {
            Self::Pinned(table, level) => tables.pin(table, level),
            Self::Kernel(vcpu, table) => tables.of_vcpu(vcpu).new_baseptr(table),
            Self::User(vcpu, table) => tables.of_vcpu(vcpu).new_user_baseptr(table),
        }
    }
}

impl Geometry {
    /// The frames that the hypervisor shares with the domain are what they always are.
    pub(crate) fn assign_special(&self, frames: Frames<'_>) -> Result<(), frames::Errno> {
        frames.assign_special(self.shared_info(), true)?;
        (0..geometry::GRANT_FRAMES)
            .try_for_each(|index| frames.assign_special(self.grant_frame(index), true))
    }
}

/// The memory that a domain had which has saved this of what its vCPUs share: pages at its start, and at most.
///
/// # Errors
///
/// [`Unfit`] when that is no state of a domain's.
pub fn memory_of(shared: &[u8]) -> Result<Option<(u64, u64)>, Unfit> {
    let mut parts = Parts::from_bytes(shared, "the domain")?;
    if !parts.has(SAVED_DOMAIN) {
        return Ok(None);
    }
    let domain: SavedDomain = parts.take(SAVED_DOMAIN)?;
    Ok(Some((domain.pages, domain.maximum)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_become_ranges() {
        let frames = [5, 6, 7, 9, 11, 12].into_iter().map(Mfn);
        assert_eq!(ranges(frames), [(5, 3), (9, 1), (11, 2)]);
    }

    #[test]
    fn a_state_of_no_domain_has_no_memory() {
        assert_eq!(memory_of(&Parts::default().to_bytes()), Ok(None));
        assert!(memory_of(&[0xff; 9]).is_err());
        let mut parts = Parts::default();
        parts.add(SAVED_DOMAIN, 2, &0_u8);
        assert!(memory_of(&parts.to_bytes()).is_err());
    }
}

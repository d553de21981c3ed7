//! Mapping grants, and ending mappings.

use frames::{Entry, Tables};
use xen_abi::grant::{Map, Unmap, UnmapAndReplace, map, status};
use xen_abi::{Mfn, PAGE_SHIFT};

use super::table::{Failed, GrantTable, Mapping, Use};
use crate::caller::Caller;
use crate::engine::Engine;
use crate::services::DOMAIN_ID;

const GENERAL: Failed = Failed(status::GENERAL_ERROR);

/// Where the available bits are that a mapping's flags have room for.
const AVAILABLE_SHIFT: u32 = 9;

/// What an operation puts an end to.
struct Ending {
    handle: u32,
    address: u64,
    /// Put the entry of this address in its place; 0 for none.
    replacement: u64,
    /// 0: the mapping for devices remains.
    bus_address: u64,
}

impl Mapping {
    /// The entry that it is for the processor.
    fn entry(&self) -> Entry {
        let mut flags =
            Entry::PRESENT | Entry::ACCESSED | Entry::DIRTY | Entry::NO_EXECUTE | self.available();
        if self.flags & map::APPLICATION != 0 {
            flags |= Entry::USER;
        }
        if !self.is_read_only() {
            flags |= Entry::WRITABLE;
        }
        Entry::new(self.frame, flags)
    }

    fn available(&self) -> u64 {
        u64::from(self.flags >> 16) << AVAILABLE_SHIFT & 7 << AVAILABLE_SHIFT
    }

    /// Where the L1's entry is that an address of it names.
    fn place(
        &self,
        tables: &mut Tables<'_, Engine<'_>>,
        address: u64,
    ) -> Result<(Mfn, usize), Failed> {
        let place = match self.flags & map::CONTAINS_PTE {
            0 => tables.leaf_of_linear(address),
            _ => tables.leaf_of_machine(address),
        };
        place.ok_or(GENERAL)
    }

    /// Have an address map it.
    fn establish(&self, tables: &mut Tables<'_, Engine<'_>>, address: u64) -> Result<(), Failed> {
        let place = self.place(tables, address)?;
        tables.replace_leaf(place, self.entry()).map_err(|_| GENERAL)
    }

    /// Have an address that maps it map what another one does now, or nothing.
    fn replace(
        &self,
        tables: &mut Tables<'_, Engine<'_>>,
        address: u64,
        replacement: u64,
    ) -> Result<(), Failed> {
        let mut moved = Entry::default();
        if replacement != 0 {
            if self.flags & map::CONTAINS_PTE != 0 {
                return Err(GENERAL);
            }
            // Whatever follows, nothing is mapped there any more.
            let place = tables.leaf_of_linear(replacement).ok_or(GENERAL)?;
            moved = tables.leaf(place);
            tables.replace_leaf(place, Entry::default()).map_err(|_| GENERAL)?;
        }
        let place = self.place(tables, address)?;
        let (found, expected) = (tables.leaf(place), self.entry());
        let differing = (found.0 ^ expected.0) & (Entry::PRESENT | Entry::WRITABLE);
        if found.mfn() != self.frame || differing != 0 {
            return Err(GENERAL);
        }
        tables.replace_leaf(place, moved).map_err(|_| GENERAL)
    }
}

impl Caller<'_> {
    /// `GNTTABOP_map_grant_ref`.
    pub(super) fn map_grant(&mut self, one: &mut Map) -> Result<(), Failed> {
        if one.flags & (map::DEVICE | map::HOST) == 0 {
            return Err(Failed(status::BAD_GNTREF));
        }
        if one.domain != DOMAIN_ID {
            return Err(Failed(status::BAD_DOMAIN));
        }
        let domain = self.domain;
        let mut table = domain.grants();
        let handle = table.handles.take().ok_or(Failed(status::NO_DEVICE_SPACE))?;
        match self.map_with(&mut table, one) {
            Ok(mapping) => {
                one.handle = handle;
                one.bus_address = mapping.frame.0 << PAGE_SHIFT;
                table.mappings.insert(handle, mapping);
                Ok(())
            }
            Err(failed) => {
                table.handles.put(handle);
                Err(failed)
            }
        }
    }

    fn map_with(&mut self, table: &mut GrantTable, one: &Map) -> Result<Mapping, Failed> {
        let domain = self.domain;
        let (flags, reference) = (one.flags, one.reference);
        let mut mapping = Mapping { reference, flags, frame: Mfn(0) };
        let uses: Vec<Use> = mapping.uses().collect();
        mapping.frame = table.begin(&domain.owned, reference, &uses, true)?.frame;
        let mapped = self.use_frame(&mapping, one.address);
        mapped.inspect_err(|_| table.end(&domain.owned, reference, &uses)).map(|()| mapping)
    }

    /// Take the references of a mapping, and make its entry.
    fn use_frame(&mut self, mapping: &Mapping, address: u64) -> Result<(), Failed> {
        let frames = self.domain.frames();
        if mapping.flags & map::DEVICE != 0 {
            mapping.take(frames)?;
        }
        if mapping.flags & map::HOST == 0 {
            return Ok(());
        }
        let established = self.with_tables(|tables| mapping.establish(tables, address));
        established.inspect_err(|_| {
            if mapping.flags & map::DEVICE != 0 {
                mapping.put(frames);
            }
        })
    }

    /// `GNTTABOP_unmap_grant_ref`.
    pub(super) fn unmap_grant(&mut self, one: &Unmap) -> Result<(), Failed> {
        let Unmap { handle, address, bus_address, .. } = *one;
        self.end_mapping(&Ending { handle, address, replacement: 0, bus_address })
    }

    /// `GNTTABOP_unmap_and_replace`.
    pub(super) fn unmap_and_replace_grant(&mut self, one: &UnmapAndReplace) -> Result<(), Failed> {
        let UnmapAndReplace { handle, address, replacement, .. } = *one;
        self.end_mapping(&Ending { handle, address, replacement, bus_address: 0 })
    }

    fn end_mapping(&mut self, ending: &Ending) -> Result<(), Failed> {
        let domain = self.domain;
        let mut table = domain.grants();
        let handle = ending.handle;
        let mapping = *table.mappings.get(&handle).ok_or(Failed(status::BAD_HANDLE))?;
        let ends_device = ending.bus_address != 0 && mapping.flags & map::DEVICE != 0;
        if ends_device && ending.bus_address != mapping.frame.0 << PAGE_SHIFT {
            return Err(Failed(status::BAD_DEV_ADDR));
        }
        let ends_host = ending.address != 0 && mapping.flags & map::HOST != 0;
        if ends_host {
            self.with_tables(|tables| mapping.replace(tables, ending.address, ending.replacement))?;
        }
        if ends_device {
            mapping.put(domain.frames());
        }
        let mut flags = if ends_host { map::HOST } else { 0 };
        flags |= if ends_device { map::DEVICE } else { 0 };
        let left = Mapping { flags: mapping.flags & !flags, ..mapping };
        if left.uses().next().is_none() {
            table.mappings.remove(&handle);
            table.handles.put(handle);
        } else {
            table.mappings.insert(handle, left);
        }
        let ended =
            Mapping { flags: mapping.flags & !(map::HOST | map::DEVICE) | flags, ..mapping };
        let uses: Vec<Use> = ended.uses().collect();
        if !uses.is_empty() {
            table.end(&domain.owned, mapping.reference, &uses);
        }
        Ok(())
    }
}

impl Mapping {
    /// Take the references that a device has.
    pub(super) fn take(&self, frames: frames::Frames<'_>) -> Result<(), Failed> {
        match self.is_read_only() {
            true => frames.take_reference(self.frame).map_err(|_| GENERAL),
            false => frames.take_writable(self.frame).map_err(|_| GENERAL),
        }
    }

    fn put(&self, frames: frames::Frames<'_>) {
        match self.is_read_only() {
            true => frames.put_reference(self.frame),
            false => frames.put_writable(self.frame),
        }
    }
}

//! The table, what of it is in use, and the marks in its entries.

use std::collections::BTreeMap;

use frames::{Frames, Outside};
use xen_abi::Mfn;
use xen_abi::grant::{entry, map, status};
use xen_io::grant::entry::{Part, Wanted, mark, part, unmark};
use xen_io::{Domain as _, GrantPlace};

use super::handles::Handles;
use crate::memory::Owned;
use crate::services::DOMAIN_ID;

/// Uses of an entry of one kind (Xen counts them in eight bits, and stops at half of that).
const MAX_USES: u32 = 0x80;

/// One of [`xen_abi::grant::status`] other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed(pub(super) i16);

/// How an entry is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// By the processor: mapped, or copied.
    Host = 0,
    /// By a device.
    Device = 2,
}

/// A use of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) kind: Kind,
    pub(super) is_read_only: bool,
}

impl Use {
    fn index(self) -> usize {
        self.kind as usize + usize::from(self.is_read_only)
    }
}

/// An entry in use.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) part: Part,
    /// By the number of [`Use::index`].
    uses: [u32; 4],
}

impl Active {
    fn is_written(&self) -> bool {
        self.uses[0] + self.uses[2] > 0
    }
}

/// A grant that the domain has mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) reference: u32,
    /// Of [`xen_abi::grant::map`]; those of host and device go when that use ends.
    pub(super) flags: u32,
    /// The frame, which the entry in use names as well.
    pub(super) frame: Mfn,
}

impl Mapping {
    pub(super) fn is_read_only(&self) -> bool {
        self.flags & map::READONLY != 0
    }

    /// The uses that it is now.
    pub(super) fn uses(&self) -> impl Iterator<Item = Use> + use<> {
        let (flags, is_read_only) = (self.flags, self.is_read_only());
        let kinds = [(map::DEVICE, Kind::Device), (map::HOST, Kind::Host)];
        let kinds = kinds.into_iter().filter(move |(flag, _)| flags & flag != 0);
        kinds.map(move |(_, kind)| Use { kind, is_read_only })
    }
}

/// See above.
#[derive(Debug)]
pub(crate) struct GrantTable {
    /// Frames of the table that the domain has asked for.
    pub(super) frames: u64,
    pub(super) mappings: BTreeMap<u32, Mapping>,
    pub(super) handles: Handles,
    active: BTreeMap<u32, Active>,
}

impl GrantTable {
    /// A domain's first.
    pub(crate) fn new() -> Self {
        let (mappings, active) = Default::default();
        Self { frames: 1, mappings, handles: Handles::default(), active }
    }

    /// The uses of frames by devices.
    pub(crate) fn uses(&self) -> impl Iterator<Item = Outside> + use<'_> {
        self.mappings.values().filter(|one| one.flags & map::DEVICE != 0).map(|mapping| {
            let frame_type = match mapping.is_read_only() {
                true => frames::FrameType::None,
                false => frames::FrameType::Writable,
            };
            Outside { mfn: mapping.frame, frame_type }
        })
    }

    /// Whether entries from a number on are in use.
    pub(super) fn is_in_use_from(&self, reference: u32) -> bool {
        self.active.range(reference..).next().is_some()
    }

    /// Whether an entry is in use.
    pub(super) fn is_in_use(&self, reference: u32) -> bool {
        self.active.contains_key(&reference)
    }

    /// Begin to use an entry; what it is for. `is_map`: not by a copy, for which parts of pages can be granted.
    pub(super) fn begin(
        &mut self,
        owned: &Owned,
        reference: u32,
        uses: &[Use],
        is_map: bool,
    ) -> Result<Part, Failed> {
        let place = self.place(owned, reference).ok_or(Failed(status::BAD_GNTREF))?;
        let active = self.active.get(&reference);
        let is_full = |active: &Active| active.uses.iter().any(|count| *count >= MAX_USES);
        if active.is_some_and(|active| is_full(active) || is_map && active.part.is_sub_page) {
            return Err(Failed(status::GENERAL_ERROR));
        }
        let is_read_only = uses.iter().all(|one| one.is_read_only);
        let is_known = active.is_some_and(|active| is_read_only || active.is_written());
        if !is_known {
            let wanted = Wanted {
                domain: DOMAIN_ID,
                is_in_use: active.is_some(),
                is_read_only,
                allows_parts: !is_map,
            };
            mark(owned, place, wanted).map_err(|_| Failed(status::GENERAL_ERROR))?;
        }
        let part = match active {
            Some(active) => active.part,
            None => first_part(owned, place, is_read_only)?,
        };
        let new = Active { part, uses: [0; 4] };
        let active = self.active.entry(reference).or_insert(new);
        uses.iter().for_each(|one| active.uses[one.index()] += 1);
        Ok(part)
    }

    /// Uses have ended.
    pub(super) fn end(&mut self, owned: &Owned, reference: u32, uses: &[Use]) {
        let Some(active) = self.active.get_mut(&reference) else { return };
        for one in uses {
            let count = &mut active.uses[one.index()];
            *count = count.saturating_sub(1);
        }
        let is_unused = active.uses == [0; 4];
        let mut marks = if is_unused { entry::READING } else { 0 };
        if !active.is_written() && uses.iter().any(|one| !one.is_read_only) {
            marks |= entry::WRITING;
        }
        if is_unused {
            self.active.remove(&reference);
        }
        if let Some(place) = self.place(owned, reference) {
            unmark(owned, place, marks);
        }
    }

    /// Where an entry is, if the table has it.
    pub(super) fn place(&self, owned: &Owned, reference: u32) -> Option<GrantPlace> {
        let entries = self.frames * owned.grant_version().entries_of_frame();
        let place = (u64::from(reference) < entries).then(|| owned.grant_place(reference));
        place.flatten()
    }

    /// Note the uses of a mapping that goes on in a restored domain; whether that can be.
    pub(super) fn resume(&mut self, mapping: &Mapping) -> bool {
        let new = Active { part: Part::whole(mapping.frame), uses: [0; 4] };
        let active = self.active.entry(mapping.reference).or_insert(new);
        mapping.uses().for_each(|one| active.uses[one.index()] += 1);
        let is_full = active.uses.iter().any(|count| *count > MAX_USES);
        active.part.frame == mapping.frame && !is_full
    }
}

/// What an entry is for that has just been marked. A frame that is not the domain's is for nothing.
fn first_part(owned: &Owned, place: GrantPlace, is_read_only: bool) -> Result<Part, Failed> {
    let frames: Frames<'_> = owned.frames();
    let part = part(owned, place);
    if let Some(part) = part
        && frames.take_reference(part.frame).is_ok()
    {
        frames.put_reference(part.frame);
        return Ok(part);
    }
    let writing = if is_read_only { 0 } else { entry::WRITING };
    unmark(owned, place, entry::READING | writing);
    Err(Failed(status::BAD_PAGE))
}

//! One entry of a grant table, of either version: what it says, and the marks that say that it is in use.
//!
//! In version 1 the marks are in the entry's own flags, so that checking and marking is one compare-and-exchange. In
//! version 2 they are in a word of another frame: the entry is checked, marked, and checked again, and a domain that
//! withdraws it looks at the marks after it has written the entry.

use std::sync::atomic::Ordering;

use xen_abi::grant::{EntryV1, entry};
use xen_abi::{Mfn, PAGE_BYTES, Wire};

use crate::limits::MAX_MARK_ATTEMPTS;
use crate::memory::{GrantPlace, MachineAddress, Memory, NoMemory};

/// What an entry has to allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The domain that it is for.
    pub domain: u16,
    /// It is in use for that domain already: what it says about that is not looked at again.
    pub is_in_use: bool,
    /// The page is not written.
    pub is_read_only: bool,
    /// It may be a grant of a part of a page (version 2).
    pub allows_parts: bool,
}

/// Why an entry does not allow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// It permits nothing.
    NotGranted,
    /// It is for another domain.
    Domain(u16),
    /// It is for reading only.
    ReadOnly,
    /// The domain changes it all the time.
    Busy,
    /// There is no memory.
    NoMemory,
}

impl From<NoMemory> for Denied {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl Wanted {
    /// Look at the first word of an entry.
    fn check(self, word: u64) -> Result<(), Denied> {
        let EntryV1 { flags, domain, .. } = EntryV1::decode(&word.to_le_bytes());
        let part = if self.allows_parts { 0 } else { entry::SUB_PAGE };
        if !self.is_in_use {
            if flags & (entry::TYPE_MASK | part) != entry::PERMIT_ACCESS {
                return Err(Denied::NotGranted);
            }
            if domain != self.domain {
                return Err(Denied::Domain(domain));
            }
        }
        if !self.is_read_only && flags & entry::READONLY != 0 {
            return Err(Denied::ReadOnly);
        }
        Ok(())
    }

    fn marks(self) -> u16 {
        entry::READING | if self.is_read_only { 0 } else { entry::WRITING }
    }
}

/// Check an entry and mark it as in use.
///
/// # Errors
///
/// [`Denied`]; an entry that was not in use has no marks then.
pub fn mark(memory: &dyn Memory, place: GrantPlace, wanted: Wanted) -> Result<(), Denied> {
    if place.marks.is_none() {
        return mark_entry(memory, place.entry, wanted);
    }
    wanted.check(memory.load_word(place.entry)?)?;
    change_half(memory, of_marks(place), |flags| flags | wanted.marks());
    let checked = memory.load_word(place.entry).map_err(Denied::from);
    checked.and_then(|word| wanted.check(word)).inspect_err(|_| {
        let marks = if wanted.is_in_use { entry::WRITING } else { wanted.marks() };
        unmark(memory, place, marks);
    })
}

fn mark_entry(memory: &dyn Memory, at: MachineAddress, wanted: Wanted) -> Result<(), Denied> {
    for _ in 0..MAX_MARK_ATTEMPTS {
        let word = memory.load_word(at)?;
        wanted.check(word)?;
        let mut is_marked = false;
        memory.change_word(at, &mut |place| {
            let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
            let marked = word | u64::from(wanted.marks());
            is_marked = place.compare_exchange(word, marked, success, failure).is_ok();
        })?;
        if is_marked {
            return Ok(());
        }
    }
    Err(Denied::Busy)
}

/// Clear marks of an entry.
pub fn unmark(memory: &dyn Memory, place: GrantPlace, marks: u16) {
    change_half(memory, of_marks(place), |flags| flags & !marks);
}

fn of_marks(place: GrantPlace) -> MachineAddress {
    place.marks.unwrap_or(place.entry)
}

/// Change two bytes in one step.
fn change_half(memory: &dyn Memory, at: MachineAddress, change: impl Fn(u16) -> u16) {
    let shift = (at.0 & 6) * 8;
    // A table does not become shorter; without memory there is nobody to tell.
    let _ = memory.change_word(MachineAddress(at.0 & !7), &mut |place| {
        let order = Ordering::SeqCst;
        // It always has a value to store.
        let _ = place.fetch_update(order, order, |word| {
            let changed = u64::from(change((word >> shift) as u16));
            Some(word & !(0xffff << shift) | changed << shift)
        });
    });
}

/// The part of a frame that a grant is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The frame.
    pub frame: Mfn,
    /// The first byte.
    pub start: u16,
    /// How many; more than the page has, if the domain says so.
    pub bytes: u16,
    /// It is a part: whoever needs the page cannot use it.
    pub is_sub_page: bool,
}

impl Part {
    /// All of a frame.
    pub const fn whole(frame: Mfn) -> Self {
        Self { frame, start: 0, bytes: PAGE_BYTES as u16, is_sub_page: false }
    }
}

/// What an entry is for, which has been checked.
pub fn part(memory: &dyn Memory, place: GrantPlace) -> Option<Part> {
    let word = memory.load_word(place.entry).ok()?;
    if place.marks.is_none() {
        return Some(Part::whole(Mfn(word >> 32)));
    }
    let frame = Mfn(memory.load_word(place.entry.plus(8)).ok()?);
    let header = EntryV1::decode(&word.to_le_bytes());
    if header.flags & entry::SUB_PAGE == 0 {
        return Some(Part::whole(frame));
    }
    let (start, bytes) = (header.frame as u16, (header.frame >> 16) as u16);
    Some(Part { frame, start, bytes, is_sub_page: true })
}

//! What a domain has granted to the back-ends: the use of its grant table's entries (version 1).
//!
//! 1. *The entry is an allegation.* It is read in one step, checked, and marked as in use by compare-and-exchange
//!    against what was checked. A domain that changes it all the time is refused after a few attempts.
//! 2. *The marks are counted.* All back-ends of a domain share one [`Grants`]: an entry stays marked until the last use
//!    of it ends, and names the same frame until then, whatever the domain writes there.
//! 3. *A use holds the frame*, by a reference for reading and as a writable frame for writing. So no frame is a page
//!    table, or is given back, while a back-end writes to it.
//! 4. *A [`Grant`] ends itself.* It must live as long as anybody uses the frame.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use frames::{Absent, Refused};
use locks::Unpoisoned;
use xen_abi::grant::{EntryV1, entry};
use xen_abi::{Mfn, PAGE_BYTES, Wire};

use crate::limits::MAX_MARK_ATTEMPTS;
use crate::memory::{Domain, MachineAddress, NoMemory, Range, fits_page};

/// The domain that back-ends are of, which entries have to name.
pub const BACK_END_DOMAIN: u16 = 0;

const ENTRIES_OF_FRAME: usize = PAGE_BYTES / EntryV1::BYTES;

/// What a back-end does with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It reads only.
    Read,
    /// It writes, and may read.
    Write,
}

/// Why a grant cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The table has no such entry.
    #[error("the grant table has no entry {0}")]
    NoEntry(u32),
    /// The entry permits nothing.
    #[error("grant {0} is not for access")]
    NotGranted(u32),
    /// It is for somebody else.
    #[error("grant {reference} is for domain {domain}")]
    Domain {
        /// Which grant.
        reference: u32,
        /// For whom it is.
        domain: u16,
    },
    /// It is for reading only.
    #[error("grant {0} is for reading only")]
    ReadOnly(u32),
    /// The frame is not the domain's.
    #[error("grant {0} names a frame that is not the domain's")]
    Frame(u32),
    /// The frame is a page table, or a table of descriptors.
    #[error("grant {0} names a frame that cannot be written")]
    Type(u32),
    /// The domain changes the entry.
    #[error("grant {0} changes while it is looked at")]
    Busy(u32),
}

/// An entry in use.
#[derive(Debug)]
struct Active {
    frame: Mfn,
    readers: u32,
    writers: u32,
}

impl Active {
    fn count(&mut self, access: Access) -> &mut u32 {
        match access {
            Access::Read => &mut self.readers,
            Access::Write => &mut self.writers,
        }
    }

    /// The marks that its uses need.
    fn marks(&self) -> u64 {
        let reading = if self.readers + self.writers > 0 { entry::READING } else { 0 };
        let writing = if self.writers > 0 { entry::WRITING } else { 0 };
        u64::from(reading | writing)
    }
}

/// A domain's grants to back-ends, for all back-ends of the domain.
pub struct Grants {
    domain: Arc<dyn Domain>,
    /// By reference. At most as many as the table has entries.
    active: Mutex<HashMap<u32, Active>>,
}

impl Grants {
    /// Of a domain, none in use.
    pub fn new(domain: Arc<dyn Domain>) -> Arc<Self> {
        Arc::new(Self { domain, active: Mutex::default() })
    }

    /// Whose they are.
    pub fn domain(&self) -> &dyn Domain {
        &*self.domain
    }

    /// Grants that are in use.
    pub fn in_use(&self) -> usize {
        self.active.lock().unpoisoned().len()
    }

    /// Each use of a frame.
    pub fn uses(&self) -> Vec<(Mfn, Access)> {
        let active = self.active.lock().unpoisoned();
        let each = active.values().flat_map(|entry| {
            let of = |access, count: u32| (0..count).map(move |_| (entry.frame, access));
            of(Access::Read, entry.readers).chain(of(Access::Write, entry.writers))
        });
        each.collect()
    }

    /// Begin to use a grant.
    ///
    /// # Errors
    ///
    /// [`GrantError`]; nothing is in use then that was not before.
    pub fn take(self: &Arc<Self>, reference: u32, access: Access) -> Result<Grant, GrantError> {
        let at = self.place(reference).ok_or(GrantError::NoEntry(reference))?;
        let mut active = self.active.lock().unpoisoned();
        let known = active.get(&reference).map(|entry| entry.frame);
        let named = self.mark(at, reference, access)?;
        let frame = known.unwrap_or(named);
        if let Err(refused) = self.hold(frame, access) {
            let marks = active.get(&reference).map_or(0, Active::marks);
            self.unmark(at, marks);
            return Err(match refused {
                Refused::Type => GrantError::Type(reference),
                Refused::Absent(Absent::Outside | Absent::Released) => GrantError::Frame(reference),
            });
        }
        let new = Active { frame, readers: 0, writers: 0 };
        *active.entry(reference).or_insert(new).count(access) += 1;
        Ok(Grant { grants: Arc::clone(self), reference, access, frame })
    }

    /// Where an entry is.
    fn place(&self, reference: u32) -> Option<MachineAddress> {
        let reference = reference as usize;
        let frame = self.domain.grant_frame(reference / ENTRIES_OF_FRAME)?;
        let offset = reference % ENTRIES_OF_FRAME * EntryV1::BYTES;
        Some(MachineAddress::in_frame(frame, offset as u64))
    }

    /// Check an entry and mark it; the frame that it names.
    fn mark(&self, at: MachineAddress, reference: u32, access: Access) -> Result<Mfn, GrantError> {
        let writing = if access == Access::Write { entry::WRITING } else { 0 };
        let marks = u64::from(entry::READING | writing);
        for _ in 0..MAX_MARK_ATTEMPTS {
            let word = self.domain.load_word(at);
            let word = word.map_err(|NoMemory| GrantError::NoEntry(reference))?;
            check(&EntryV1::decode(&word.to_le_bytes()), reference, access)?;
            let mut is_marked = false;
            let changed = self.domain.change_word(at, &mut |place| {
                let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
                let result = place.compare_exchange(word, word | marks, success, failure);
                is_marked = result.is_ok();
            });
            changed.map_err(|NoMemory| GrantError::NoEntry(reference))?;
            if is_marked {
                return Ok(Mfn(word >> 32));
            }
        }
        Err(GrantError::Busy(reference))
    }

    /// Clear the marks of an entry, but for those that are still needed.
    fn unmark(&self, at: MachineAddress, needed: u64) {
        let marks = u64::from(entry::READING | entry::WRITING) & !needed;
        // A table does not become shorter; without memory there is nobody to tell.
        let _ = self.domain.change_word(at, &mut |place| {
            place.fetch_and(!marks, Ordering::SeqCst);
        });
    }

    fn hold(&self, frame: Mfn, access: Access) -> Result<(), Refused> {
        match access {
            Access::Read => self.domain.frames().take_reference(frame).map_err(Refused::Absent),
            Access::Write => self.domain.frames().take_writable(frame),
        }
    }

    fn end(&self, reference: u32, access: Access, frame: Mfn) {
        match access {
            Access::Read => self.domain.frames().put_reference(frame),
            Access::Write => self.domain.frames().put_writable(frame),
        }
        let mut active = self.active.lock().unpoisoned();
        let Some(entry) = active.get_mut(&reference) else { return };
        *entry.count(access) -= 1;
        let marks = entry.marks();
        if marks == 0 {
            active.remove(&reference);
        }
        if let Some(at) = self.place(reference) {
            self.unmark(at, marks);
        }
    }
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Grants").field("in_use", &self.in_use()).finish_non_exhaustive()
    }
}

/// Whether an entry allows this.
fn check(allegation: &EntryV1, reference: u32, access: Access) -> Result<(), GrantError> {
    if allegation.flags & entry::TYPE_MASK != entry::PERMIT_ACCESS {
        return Err(GrantError::NotGranted(reference));
    }
    if allegation.domain != BACK_END_DOMAIN {
        return Err(GrantError::Domain { reference, domain: allegation.domain });
    }
    if access == Access::Write && allegation.flags & entry::READONLY != 0 {
        return Err(GrantError::ReadOnly(reference));
    }
    Ok(())
}

/// A grant in use: the frame is there, and of a kind that allows the access, until this is dropped.
#[derive(Debug)]
pub struct Grant {
    grants: Arc<Grants>,
    reference: u32,
    access: Access,
    frame: Mfn,
}

impl Grant {
    /// The frame.
    pub fn frame(&self) -> Mfn {
        self.frame
    }

    /// So many bytes from an offset on, if they are inside of the page.
    pub fn range(&self, offset: usize, bytes: usize) -> Option<Range> {
        let at = MachineAddress::in_frame(self.frame, offset as u64);
        fits_page(offset, bytes).then_some(Range { at, bytes: bytes as u32 })
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.grants.end(self.reference, self.access, self.frame);
    }
}

//! What a domain has granted to the back-ends: the use of its grant table's entries.
//!
//! 1. *The entry is an allegation.* It is read in one step, checked, and marked as in use by compare-and-exchange
//!    against what was checked. A domain that changes it all the time is refused after a few attempts.
//! 2. *The marks are counted.* All back-ends of a domain share one [`Grants`]: an entry stays marked until the last use
//!    of it ends, and names the same frame until then, whatever the domain writes there.
//! 3. *A use holds the frame*, by a reference for reading and as a writable frame for writing. So no frame is a page
//!    table, or is given back, while a back-end writes to it.
//! 4. *A [`Grant`] ends itself.* It must live as long as anybody uses the frame.

pub mod entry;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use frames::{Absent, Refused};
use locks::Unpoisoned;
use xen_abi::Mfn;
use xen_abi::grant::entry as flag;

use self::entry::{Denied, Wanted};
use crate::memory::{Domain, GrantPlace, MachineAddress, Range, fits_page};

/// The domain that back-ends are of, which entries have to name.
pub const BACK_END_DOMAIN: u16 = 0;

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
    fn marks(&self) -> u16 {
        let reading = if self.readers + self.writers > 0 { flag::READING } else { 0 };
        let writing = if self.writers > 0 { flag::WRITING } else { 0 };
        reading | writing
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

    /// Whether an entry from this number on is in use.
    pub fn is_in_use_from(&self, reference: u32) -> bool {
        self.active.lock().unpoisoned().keys().any(|known| *known >= reference)
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
        let at = self.domain.grant_place(reference).ok_or(GrantError::NoEntry(reference))?;
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

    /// Check an entry and mark it; the frame that it names.
    fn mark(&self, place: GrantPlace, reference: u32, access: Access) -> Result<Mfn, GrantError> {
        let is_read_only = access == Access::Read;
        let domain = BACK_END_DOMAIN;
        let wanted = Wanted { domain, is_in_use: false, is_read_only, allows_parts: false };
        entry::mark(&*self.domain, place, wanted).map_err(|denied| match denied {
            Denied::NotGranted => GrantError::NotGranted(reference),
            Denied::Domain(domain) => GrantError::Domain { reference, domain },
            Denied::ReadOnly => GrantError::ReadOnly(reference),
            Denied::Busy => GrantError::Busy(reference),
            Denied::NoMemory => GrantError::NoEntry(reference),
        })?;
        let part = entry::part(&*self.domain, place).ok_or(GrantError::NoEntry(reference))?;
        Ok(part.frame)
    }

    /// Clear the marks of an entry, but for those that are still needed.
    fn unmark(&self, place: GrantPlace, needed: u16) {
        entry::unmark(&*self.domain, place, (flag::READING | flag::WRITING) & !needed);
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
        if let Some(at) = self.domain.grant_place(reference) {
            self.unmark(at, marks);
        }
    }
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Grants").field("in_use", &self.in_use()).finish_non_exhaustive()
    }
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

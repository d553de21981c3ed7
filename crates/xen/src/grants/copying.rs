//! Copies between pages that are granted, or the domain's own.

use xen_abi::grant::{CopyPages, CopySide, Swap, copy, status};
use xen_abi::{Mfn, PAGE_BYTES, domain};
use xen_io::MachineAddress;
use xen_io::Memory as _;
use xen_io::grant::entry::Part;

use super::table::{Failed, GrantTable, Kind, Use};
use crate::caller::Caller;
use crate::domain::Domain;
use crate::services::DOMAIN_ID;

/// A side of a copy while it is in use.
struct Side {
    /// Which grant it is, if it is one.
    reference: Option<u32>,
    part: Part,
    is_read_only: bool,
}

impl Side {
    fn uses(&self) -> [Use; 1] {
        [Use { kind: Kind::Host, is_read_only: self.is_read_only }]
    }

    fn begin(
        table: &mut GrantTable,
        domain: &Domain,
        side: &CopySide,
        (is_grant, is_read_only): (bool, bool),
    ) -> Result<Self, Failed> {
        let reference = is_grant.then_some(side.page as u32);
        let mut new = Self { reference, part: Part::whole(Mfn(side.page)), is_read_only };
        if let Some(reference) = reference {
            new.part = table.begin(&domain.owned, reference, &new.uses(), false)?;
        }
        new.hold(domain).inspect_err(|_| new.end_grant(table, domain))?;
        Ok(new)
    }

    fn hold(&self, domain: &Domain) -> Result<(), Failed> {
        let (frame, frames) = (self.part.frame, domain.frames());
        frames.take_reference(frame).map_err(|_| Failed(status::BAD_PAGE))?;
        if self.is_read_only {
            return Ok(());
        }
        let taken = frames.take_writable(frame).map_err(|_| Failed(status::GENERAL_ERROR));
        frames.put_reference(frame);
        taken
    }

    fn end_grant(&self, table: &mut GrantTable, domain: &Domain) {
        if let Some(reference) = self.reference {
            table.end(&domain.owned, reference, &self.uses());
        }
    }

    fn end(self, table: &mut GrantTable, domain: &Domain) {
        match self.is_read_only {
            true => domain.frames().put_reference(self.part.frame),
            false => domain.frames().put_writable(self.part.frame),
        }
        self.end_grant(table, domain);
    }

    /// Whether so many bytes from an offset on are of what was granted.
    fn has(&self, offset: u16, bytes: u16) -> bool {
        let [offset, bytes, start, length] =
            [offset, bytes, self.part.start, self.part.bytes].map(usize::from);
        (start..=start + length).contains(&offset) && offset + bytes <= start + length
    }
}

/// Whether a side can be a domain's: of oneself, or by a grant of one that there is.
fn check_domain(side: &CopySide, is_grant: bool) -> Result<(), Failed> {
    match side.domain {
        domain::THIS => Ok(()),
        _ if !is_grant => Err(Failed(status::PERMISSION_DENIED)),
        DOMAIN_ID => Ok(()),
        _ => Err(Failed(status::BAD_DOMAIN)),
    }
}

impl Caller<'_> {
    /// `GNTTABOP_copy`.
    pub(super) fn copy_grants(&mut self, one: &CopyPages) -> Result<(), Failed> {
        let sides = [(&one.source, copy::SOURCE_GREF), (&one.destination, copy::DEST_GREF)];
        let [from, to] = sides.map(|(side, flag)| (side, one.flags & flag != 0));
        check_domain(from.0, from.1)?;
        check_domain(to.0, to.1)?;
        let domain = self.domain;
        let mut table = domain.grants();
        let source = Side::begin(&mut table, domain, from.0, (from.1, true))?;
        let destination = match Side::begin(&mut table, domain, to.0, (to.1, false)) {
            Ok(destination) => destination,
            Err(failed) => {
                source.end(&mut table, domain);
                return Err(failed);
            }
        };
        let copied = copy_between(domain, one, &source, &destination);
        destination.end(&mut table, domain);
        source.end(&mut table, domain);
        copied
    }

    /// `GNTTABOP_swap_grant_ref`.
    pub(super) fn swap_grants(&mut self, one: &Swap) -> Result<(), Failed> {
        let table = self.domain.grants();
        let owned = &*self.domain.owned;
        let bad = Failed(status::BAD_GNTREF);
        let first = table.place(owned, one.first).ok_or(bad)?;
        let second = table.place(owned, one.second).ok_or(bad)?;
        if one.first == one.second {
            return Ok(());
        }
        if table.is_in_use(one.first) || table.is_in_use(one.second) {
            return Err(Failed(status::EAGAIN));
        }
        let bytes = owned.grant_version().entry_bytes();
        exchange(owned, first.entry, second.entry, bytes);
        if let (Some(first), Some(second)) = (first.marks, second.marks) {
            exchange(owned, first, second, size_of::<u16>());
        }
        Ok(())
    }
}

fn copy_between(
    domain: &Domain,
    one: &CopyPages,
    source: &Side,
    destination: &Side,
) -> Result<(), Failed> {
    let (from, to, length) = (one.source.offset, one.destination.offset, one.length);
    let is_beyond = |offset: u16| usize::from(offset) + usize::from(length) > PAGE_BYTES;
    if is_beyond(from) || is_beyond(to) {
        return Err(Failed(status::BAD_COPY_ARG));
    }
    if !source.has(from, length) || !destination.has(to, length) {
        return Err(Failed(status::GENERAL_ERROR));
    }
    copy_forward(domain, (source.part.frame, from), (destination.part.frame, to), length)
}

/// Copy from lower to higher addresses, as Xen does: where the two overlap, what was written is copied again.
fn copy_forward(
    domain: &Domain,
    from: (Mfn, u16),
    to: (Mfn, u16),
    length: u16,
) -> Result<(), Failed> {
    let at = |(frame, offset): (Mfn, u16), done: usize| {
        MachineAddress::in_frame(frame, u64::from(offset)).plus(done as u64)
    };
    let distance = if from.0 == to.0 { to.1.saturating_sub(from.1) } else { 0 };
    let piece = if distance == 0 { length } else { distance.min(length) };
    let mut buffer = [0; PAGE_BYTES];
    let mut done = 0;
    while done < usize::from(length) {
        let bytes = &mut buffer[..usize::from(piece).min(usize::from(length) - done)];
        let copied = domain.memory.read(at(from, done), bytes);
        let copied = copied.and_then(|()| domain.memory.write(at(to, done), bytes));
        copied.map_err(|_| Failed(status::GENERAL_ERROR))?;
        done += bytes.len();
    }
    Ok(())
}

/// Exchange bytes of the table, which the domain may write meanwhile.
fn exchange(
    owned: &crate::memory::Owned,
    first: MachineAddress,
    second: MachineAddress,
    bytes: usize,
) {
    let mut both = [[0; 16]; 2];
    let [one, other] = &mut both;
    let (one, other) = (&mut one[..bytes], &mut other[..bytes]);
    // The table's frames are memory.
    let _ = owned.read(first, one).and_then(|()| owned.read(second, other));
    let _ = owned.write(first, other).and_then(|()| owned.write(second, one));
}

//! A request of a front-end: what of it is checked before anything is done.

use std::sync::Arc;

use xen_abi::block::{
    Discard, Indirect, Request as Direct, SECTOR_BYTES, Segment, limit, operation, status,
};
use xen_abi::{PAGE_BYTES, Wire};

use super::vbd::{Place, Right, Vbd};
use crate::grant::{Access, Grants};
use crate::limits::MAX_INDIRECT_SEGMENTS;

/// Bytes of a request in the ring.
pub(super) const ENTRY_BYTES: usize = limit::ENTRY_BYTES as usize;

const SECTORS_OF_PAGE: u8 = (PAGE_BYTES as u64 / SECTOR_BYTES) as u8;

/// A request that is to be answered.
#[derive(Debug)]
pub(super) struct Request {
    pub id: u64,
    /// What the answer names: of an indirect request, the operation in it.
    pub operation: u8,
    pub action: Action,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Action {
    /// Move pages' parts to or from these places. They are as long as each other.
    Move { right: Right, places: Vec<Place>, segments: Vec<Segment>, is_ordered: bool },
    /// Have what was written survive.
    Flush,
    /// The places read as zeroes.
    Discard(Vec<Place>),
    /// Nothing but to answer.
    Answer(i16),
}

impl Request {
    /// What the bytes of a ring's entry ask for.
    pub fn parse(
        bytes: &[u8; ENTRY_BYTES],
        vbd: &Vbd,
        grants: &Arc<Grants>,
        discards: bool,
    ) -> Self {
        let direct = Direct::decode(bytes);
        let (id, operation) = (direct.id, direct.operation);
        match operation {
            operation::READ
            | operation::WRITE
            | operation::WRITE_BARRIER
            | operation::FLUSH_DISKCACHE => {
                let segments = direct.segments.get(..direct.count.into());
                let moved = segments.ok_or(status::ERROR);
                let moved =
                    moved.and_then(|it| transfer(operation, direct.sector, it.to_vec(), vbd));
                Self::new(id, operation, moved)
            }
            operation::INDIRECT => {
                let indirect = Indirect::decode(bytes);
                let operation = indirect.indirect_operation;
                let moved = match operation {
                    operation::READ | operation::WRITE => fetch(&indirect, grants),
                    _ => Err(status::ERROR),
                };
                let moved = moved.and_then(|it| transfer(operation, indirect.sector, it, vbd));
                Self::new(indirect.id, operation, moved)
            }
            operation::DISCARD => {
                let discard = Discard::decode(bytes);
                Self::new(discard.id, operation, discarded(&discard, vbd, discards))
            }
            _ => Self::new(id, operation, Err(status::EOPNOTSUPP)),
        }
    }

    fn new(id: u64, operation: u8, action: Result<Action, i16>) -> Self {
        Self { id, operation, action: action.unwrap_or_else(Action::Answer) }
    }

    /// Nothing passes it, and it passes nothing.
    pub fn is_ordered(&self) -> bool {
        matches!(self.action, Action::Flush | Action::Move { is_ordered: true, .. })
    }

    /// Bytes that it moves.
    pub fn bytes(&self) -> u64 {
        match &self.action {
            Action::Move { places, .. } => places.iter().map(|place| place.bytes).sum(),
            _ => 0,
        }
    }

    /// Requests of a turn begin in the order of this.
    pub fn position(&self) -> Option<(usize, u64)> {
        match &self.action {
            Action::Move { places, .. } | Action::Discard(places) => {
                places.first().map(|place| (place.image, place.at))
            }
            _ => None,
        }
    }
}

/// A transfer of segments; a flush may have none.
fn transfer(operation: u8, sector: u64, segments: Vec<Segment>, vbd: &Vbd) -> Result<Action, i16> {
    let is_ordered = matches!(operation, operation::WRITE_BARRIER | operation::FLUSH_DISKCACHE);
    if segments.is_empty() {
        return if is_ordered { Ok(Action::Flush) } else { Err(status::ERROR) };
    }
    let mut sectors = 0;
    for segment in &segments {
        let (first, last) = (segment.first_sector, segment.last_sector);
        if last >= SECTORS_OF_PAGE || last < first {
            return Err(status::ERROR);
        }
        sectors += u64::from(last - first) + 1;
    }
    let right = if operation == operation::READ { Right::Read } else { Right::Write };
    let places = vbd.locate(sector, sectors, right).map_err(|_| status::ERROR)?;
    Ok(Action::Move { right, places, segments, is_ordered })
}

/// The segments of an indirect request, which are in pages of their own.
fn fetch(indirect: &Indirect, grants: &Arc<Grants>) -> Result<Vec<Segment>, i16> {
    let count = usize::from(indirect.count);
    if count == 0 || count > MAX_INDIRECT_SEGMENTS {
        return Err(status::ERROR);
    }
    const OF_PAGE: usize = PAGE_BYTES / Segment::BYTES;
    let pages = count.div_ceil(OF_PAGE);
    let mut segments = Vec::with_capacity(count);
    for reference in indirect.references.iter().take(pages) {
        let page = grants.take(*reference, Access::Read).map_err(|_| status::ERROR)?;
        let now = (count - segments.len()).min(OF_PAGE);
        // They are copied before they are looked at: the page remains the guest's.
        let mut bytes = [0; PAGE_BYTES];
        let bytes = &mut bytes[..now * Segment::BYTES];
        let range = page.range(0, bytes.len()).ok_or(status::ERROR)?;
        grants.domain().read(range.at, bytes).map_err(|_| status::ERROR)?;
        segments.extend(bytes.chunks_exact(Segment::BYTES).map(Segment::decode));
    }
    Ok(segments)
}

fn discarded(discard: &Discard, vbd: &Vbd, is_offered: bool) -> Result<Action, i16> {
    // The only flag asks for erasure, which nobody was promised.
    if !is_offered || discard.flag != 0 {
        return Err(status::EOPNOTSUPP);
    }
    let places = vbd.locate(discard.sector, discard.sectors, Right::Write);
    places.map(Action::Discard).map_err(|_| status::ERROR)
}

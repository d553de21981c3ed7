//! What a front-end receives.

use std::sync::Arc;

use xen_abi::net::{
    ExtraInfo, ReceiveRequest, ReceiveResponse, extra, gso, limit, receive, status,
};
use xen_abi::{PAGE_BYTES, Wire};

use super::{Checksum, Offload, SegmentKind, Segmentation, Takes};
use crate::error::Broken;
use crate::grant::{Access, Grant, Grants};
use crate::ring::Ring;

const ENTRY_BYTES: usize = limit::RECEIVE_ENTRY_BYTES as usize;

/// What has come of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// The front-end has it.
    Taken,
    /// There are too few pages now; the front-end notifies when there are enough.
    NoRoom,
    /// The front-end does not take such packets, or the pages are no good.
    Lost,
}

/// The ring.
#[derive(Debug)]
pub struct Receiver {
    ring: Ring,
    grants: Arc<Grants>,
    takes: Takes,
}

impl Receiver {
    /// The ring in the page of this grant, of a front-end that takes this.
    ///
    /// # Errors
    ///
    /// [`Broken`] if it is none.
    pub fn new(grants: &Arc<Grants>, reference: u32, takes: Takes) -> Result<Self, Broken> {
        let ring = Ring::open(grants, &[reference], ENTRY_BYTES)?;
        Ok(Self { ring, grants: Arc::clone(grants), takes })
    }

    /// Give the front-end a packet.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn give(&mut self, packet: &[u8], offload: Offload) -> Result<Given, Broken> {
        let pages = packet.len().div_ceil(PAGE_BYTES) as u32;
        if packet.is_empty() || !self.is_taken(pages, offload) {
            return Ok(Given::Lost);
        }
        let needed = pages + u32::from(offload.segmentation.is_some());
        if self.ring.waiting()? < needed && self.ring.asks_for(needed)? {
            return Ok(Given::NoRoom);
        }
        let mut slots = Vec::with_capacity(needed as usize);
        for _ in 0..needed {
            let mut bytes = [0; ENTRY_BYTES];
            // They were counted.
            self.ring.pop(&mut bytes)?;
            slots.push(ReceiveRequest::decode(&bytes));
        }
        match self.fill(&slots, packet, offload) {
            true => self.answer(&slots, packet.len(), offload).map(|()| Given::Taken),
            false => self.refuse(&slots).map(|()| Given::Lost),
        }
    }

    /// Let the front-end see what it has been given; whether it is to be notified.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn publish(&mut self) -> Result<bool, Broken> {
        self.ring.publish()
    }

    fn is_taken(&self, pages: u32, offload: Offload) -> bool {
        let Takes { several_pages, large, .. } = self.takes;
        let fits = pages == 1 || (several_pages && pages < limit::SLOTS_AT_LEAST);
        fits && offload.segmentation.is_none_or(|it| large[it.kind as usize])
    }

    /// Copy a packet into pages, of which the second is not used if something else goes with it.
    fn fill(&self, slots: &[ReceiveRequest], packet: &[u8], offload: Offload) -> bool {
        let used = slots.iter().enumerate();
        let used = used.filter(|(index, _)| *index != 1 || offload.segmentation.is_none());
        let grants: Result<Vec<Grant>, _> =
            used.map(|(_, slot)| self.grants.take(slot.reference, Access::Write)).collect();
        let Ok(grants) = grants else { return false };
        grants.iter().zip(packet.chunks(PAGE_BYTES)).all(|(grant, bytes)| {
            let range = grant.range(0, bytes.len());
            range.is_some_and(|range| self.grants.domain().write(range.at, bytes).is_ok())
        })
    }

    fn answer(
        &mut self,
        slots: &[ReceiveRequest],
        bytes: usize,
        offload: Offload,
    ) -> Result<(), Broken> {
        let mut left = bytes;
        for (index, slot) in slots.iter().enumerate() {
            if let Some(segmentation) = offload.segmentation.filter(|_| index == 1) {
                self.ring.push(&information(segmentation).to_bytes())?;
                continue;
            }
            let here = left.min(PAGE_BYTES);
            left -= here;
            let mut flags = if index == 0 { first_flags(offload) } else { 0 };
            if left > 0 {
                flags |= receive::MORE_DATA;
            }
            let status = here as i16;
            self.ring
                .push(&ReceiveResponse { id: slot.id, offset: 0, flags, status }.to_bytes())?;
        }
        Ok(())
    }

    /// None of the pages has anything.
    fn refuse(&mut self, slots: &[ReceiveRequest]) -> Result<(), Broken> {
        let refusal =
            |id| ReceiveResponse { id, offset: 0, flags: 0, status: status::ERROR }.to_bytes();
        slots.iter().try_for_each(|slot| self.ring.push(&refusal(slot.id)))
    }
}

fn first_flags(offload: Offload) -> u16 {
    let checksum = match offload.checksum {
        Checksum::Unknown => 0,
        Checksum::Valid => receive::DATA_VALIDATED,
        Checksum::Blank => receive::DATA_VALIDATED | receive::CSUM_BLANK,
    };
    match offload.segmentation {
        Some(_) => checksum | receive::EXTRA_INFO,
        None => checksum,
    }
}

fn information(Segmentation { kind, bytes }: Segmentation) -> ExtraInfo {
    let gso_kind = match kind {
        SegmentKind::Tcp4 => gso::TCPV4,
        SegmentKind::Tcp6 => gso::TCPV6,
    };
    let kind = extra::GSO;
    ExtraInfo { kind, flags: 0, gso_size: bytes, gso_kind, padding: 0, gso_features: 0 }
}

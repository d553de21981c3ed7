//! What a front-end transmits.

use std::sync::Arc;

use xen_abi::Wire;
use xen_abi::net::{
    ExtraInfo, TransmitRequest, TransmitResponse, extra, gso, limit, status, transmit,
};

use super::{Checksum, HEADER_BYTES, Offload, SegmentKind, Segmentation};
use crate::error::Broken;
use crate::grant::{Access, Grants};
use crate::ring::Ring;

const ENTRY_BYTES: usize = limit::TRANSMIT_ENTRY_BYTES as usize;

/// The slots of data that a packet may have: more than any front-end uses (Linux: 18).
const MAX_SLOTS: u32 = 20;

/// The slots of further information that a packet may have, one for each kind.
const MAX_EXTRAS: u32 = extra::HASH as u32;

/// The ring.
#[derive(Debug)]
pub struct Transmitter {
    ring: Ring,
    grants: Arc<Grants>,
}

/// A packet's slots, copied.
struct Slots {
    data: Vec<TransmitRequest>,
    extras: Vec<ExtraInfo>,
}

/// The slots make no sense.
struct Wrong;

impl Transmitter {
    /// The ring in the page of this grant.
    ///
    /// # Errors
    ///
    /// [`Broken`] if it is none.
    pub fn new(grants: &Arc<Grants>, reference: u32) -> Result<Self, Broken> {
        let ring = Ring::open(grants, &[reference], ENTRY_BYTES)?;
        Ok(Self { ring, grants: Arc::clone(grants) })
    }

    /// Take the next packet, whose bytes are the first of `room` then: how many, and what goes with them; none if there
    /// is none. A packet that makes no sense, or for which there is no room, is answered and passed over.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn next(&mut self, room: &mut [u8]) -> Result<Option<(usize, Offload)>, Broken> {
        // As many as the ring can have, so that nobody keeps us here.
        for _ in 0..self.ring.entries() {
            if self.ring.waiting()? == 0 {
                return Ok(None);
            }
            let slots = self.take()?;
            let copied = self.copy(&slots, room);
            let copied = copied.and_then(|bytes| Ok((bytes, slots.offload()?)));
            let status = if copied.is_ok() { status::OKAY } else { status::ERROR };
            self.answer(&slots, status)?;
            if let Ok(packet) = copied {
                return Ok(Some(packet));
            }
        }
        Ok(None)
    }

    /// Let the front-end see what was taken; whether it is to be notified.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn publish(&mut self) -> Result<bool, Broken> {
        self.ring.publish()
    }

    /// Have the front-end notify us of the next packet. False: there is one by now.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn sleep(&mut self) -> Result<bool, Broken> {
        self.ring.asks_for_event()
    }

    /// Take the slots of a packet from the ring, in which there is one at least.
    fn take(&mut self) -> Result<Slots, Broken> {
        let (mut slots, mut bytes) =
            (Slots { data: Vec::new(), extras: Vec::new() }, [0; ENTRY_BYTES]);
        loop {
            self.pop(&mut bytes)?;
            let slot = TransmitRequest::decode(&bytes);
            let mut has_extra = slots.data.is_empty() && slot.flags & transmit::EXTRA_INFO != 0;
            let has_more = slot.flags & transmit::MORE_DATA != 0;
            slots.data.push(slot);
            while has_extra {
                self.pop(&mut bytes)?;
                let info = ExtraInfo::decode(&bytes[..ExtraInfo::BYTES]);
                has_extra = info.flags & extra::FLAG_MORE != 0;
                slots.extras.push(info);
                if slots.extras.len() as u32 > MAX_EXTRAS {
                    return Err(Broken::Packet);
                }
            }
            if !has_more {
                return Ok(slots);
            }
            if slots.data.len() as u32 >= MAX_SLOTS {
                return Err(Broken::Packet);
            }
        }
    }

    /// Take the next slot of a packet that has begun.
    fn pop(&mut self, bytes: &mut [u8; ENTRY_BYTES]) -> Result<(), Broken> {
        if self.ring.pop(bytes)? { Ok(()) } else { Err(Broken::Packet) }
    }

    /// Copy a packet; how many bytes it has. The first slot has the length of all of it.
    fn copy(&self, slots: &Slots, room: &mut [u8]) -> Result<usize, Wrong> {
        let (first, rest) = slots.data.split_first().ok_or(Wrong)?;
        let others: usize = rest.iter().map(|slot| usize::from(slot.size)).sum();
        let total = usize::from(first.size);
        let own = total.checked_sub(others).ok_or(Wrong)?;
        let mut room = room.get_mut(..total).ok_or(Wrong)?;
        if total < HEADER_BYTES || own == 0 {
            return Err(Wrong);
        }
        let sizes = std::iter::once(own).chain(rest.iter().map(|slot| slot.size.into()));
        for (slot, size) in slots.data.iter().zip(sizes) {
            let grant = self.grants.take(slot.reference, Access::Read).map_err(|_| Wrong)?;
            let range = grant.range(slot.offset.into(), size).ok_or(Wrong)?;
            let (bytes, later) = room.split_at_mut_checked(size).ok_or(Wrong)?;
            self.grants.domain().read(range.at, bytes).map_err(|_| Wrong)?;
            room = later;
        }
        Ok(total)
    }

    /// Answer each slot; those of further information have no number.
    fn answer(&mut self, slots: &Slots, status: i16) -> Result<(), Broken> {
        for (index, slot) in slots.data.iter().enumerate() {
            self.ring.push(&TransmitResponse { id: slot.id, status }.to_bytes())?;
            for _ in slots.extras.iter().filter(|_| index == 0) {
                self.ring.push(&TransmitResponse { id: 0, status: status::NULL }.to_bytes())?;
            }
        }
        Ok(())
    }
}

impl Slots {
    /// What goes with the packet.
    fn offload(&self) -> Result<Offload, Wrong> {
        let flags = self.data.first().ok_or(Wrong)?.flags;
        let checksum = match flags {
            flags if flags & transmit::CSUM_BLANK != 0 => Checksum::Blank,
            flags if flags & transmit::DATA_VALIDATED != 0 => Checksum::Valid,
            _ => Checksum::Unknown,
        };
        let mut segmentation = None;
        for info in &self.extras {
            let kind = match (info.kind, info.gso_kind) {
                (extra::GSO, gso::TCPV4) => SegmentKind::Tcp4,
                (extra::GSO, gso::TCPV6) => SegmentKind::Tcp6,
                // Neither addresses of groups nor hashes are offered.
                _ => return Err(Wrong),
            };
            let bytes = Some(info.gso_size).filter(|bytes| *bytes > 0).ok_or(Wrong)?;
            segmentation = Some(Segmentation { kind, bytes });
        }
        Ok(Offload { checksum, segmentation })
    }
}

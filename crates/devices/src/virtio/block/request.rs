//! What a driver asks of a block device (virtio 1.2, 5.2.6).

use machine::memory::Memory;
use vm_memory::GuestAddress;

use super::bits::{HEADER_BYTES, kind};
use crate::virtio::{Broken, Chain, Segment};

/// A request: its header has been read, its data has not.
#[derive(Debug)]
pub(super) struct Request {
    pub head: u16,
    pub kind: u32,
    pub sector: u64,
    /// What is to be written to the disk.
    pub source: Vec<Segment>,
    /// Where what is read goes.
    pub target: Vec<Segment>,
    /// Where the last byte goes, which says how it went.
    pub status: GuestAddress,
}

impl Request {
    /// Take a chain apart: 16 bytes of header, data, a byte of status. Nothing may be presumed of how
    /// these lie in descriptors (2.7.4.1).
    pub fn parse(chain: &Chain, memory: &dyn Memory) -> Result<Self, Broken> {
        let mut source = chain.readable.clone();
        let mut target = chain.writable.clone();
        let mut header = [0; HEADER_BYTES];
        take_front(memory, &mut source, &mut header)?;
        let [k0, k1, k2, k3, _, _, _, _, s @ ..] = header;
        let status = take_last(&mut target).ok_or(Broken::Request)?;
        Ok(Self {
            head: chain.head,
            kind: u32::from_le_bytes([k0, k1, k2, k3]),
            sector: u64::from_le_bytes(s),
            source,
            target,
            status,
        })
    }

    /// Bytes that a read or write moves.
    pub fn bytes_moved(&self) -> u64 {
        Chain::bytes(if self.kind == kind::READ { &self.target } else { &self.source })
    }

    /// Bytes of guest memory that a read or write has filled if it went well.
    pub fn bytes_filled(&self) -> u32 {
        if self.kind == kind::READ { self.bytes_moved() as u32 } else { 0 }
    }
}

/// Read bytes at the start of `segments`, which lose them.
pub(super) fn take_front(
    memory: &dyn Memory,
    segments: &mut Vec<Segment>,
    bytes: &mut [u8],
) -> Result<(), Broken> {
    let mut filled = 0;
    while filled < bytes.len() {
        let Some(first) = segments.first_mut() else { return Err(Broken::Request) };
        let now = (first.length as usize).min(bytes.len() - filled);
        memory.read(GuestAddress(first.address), &mut bytes[filled..filled + now])?;
        filled += now;
        first.address += now as u64;
        first.length -= now as u32;
        if first.length == 0 {
            segments.remove(0);
        }
    }
    Ok(())
}

/// Where the last byte of `segments` is, which lose it.
fn take_last(segments: &mut Vec<Segment>) -> Option<GuestAddress> {
    loop {
        let last = segments.last_mut()?;
        let Some(less) = last.length.checked_sub(1) else {
            segments.pop();
            continue;
        };
        last.length = less;
        let at = GuestAddress(last.address + u64::from(less));
        if less == 0 {
            segments.pop();
        }
        return Some(at);
    }
}

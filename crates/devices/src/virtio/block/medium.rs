//! What the queues of a disk have in common: what keeps its bytes, and what of a request may be done there.

use machine::memory::Memory;

use super::backend::{BlockBackend, Job};
use super::bits::{IDENTITY_BYTES, RANGE_BYTES, SECTOR_BYTES, Status, UNMAP, kind};
use super::request::{Request, take_front};
use crate::limits::{MAX_BLOCK_DISCARD_BYTES, MAX_BLOCK_SEGMENTS, MAX_BLOCK_TRANSFER_BYTES};
use crate::virtio::scatter;

/// See above.
pub(super) struct Medium {
    pub backend: Box<dyn BlockBackend>,
    /// The driver knows of no flushing.
    pub writes_through: bool,
}

impl Medium {
    /// How many of the first requests are one job; at least one.
    pub fn neighbours(&self, requests: &[Request]) -> usize {
        let first = &requests[0];
        if first.kind == kind::FLUSH {
            return requests.iter().take_while(|request| request.kind == kind::FLUSH).count();
        }
        if !matches!(first.kind, kind::READ | kind::WRITE) {
            return 1;
        }
        let (mut end, mut segments, mut bytes) = (first.sector, 0, 0);
        let continues = |request: &&Request| {
            let is_next = request.kind == first.kind && request.sector == end;
            let moved = request.bytes_moved();
            segments += request.source.len() + request.target.len();
            bytes += moved;
            end = end.wrapping_add(moved / SECTOR_BYTES);
            let is_small = segments <= MAX_BLOCK_SEGMENTS && bytes <= MAX_BLOCK_TRANSFER_BYTES;
            is_next && is_small && self.place(request).is_ok()
        };
        requests.iter().take_while(continues).count().max(1)
    }

    /// What is to be done for requests that belong together, or the answer to one that asks for
    /// nothing that takes time, or for what cannot be.
    pub fn job(&self, requests: &[Request], memory: &dyn Memory) -> Result<Job, (Status, u32)> {
        let failed = |status| (status, 0);
        let first = &requests[0];
        match first.kind {
            kind::READ => {
                let at = self.place(first).map_err(failed)?;
                let target = requests.iter().flat_map(|request| &request.target);
                Ok(Job::Read { at, target: target.copied().collect() })
            }
            kind::WRITE => {
                let at = self.place(first).map_err(failed)?;
                self.must_be_writable().map_err(failed)?;
                let source = requests.iter().flat_map(|request| &request.source);
                Ok(Job::Write { at, source: source.copied().collect() })
            }
            kind::FLUSH => Ok(Job::Flush),
            kind::GET_ID => {
                let mut name = [0; IDENTITY_BYTES];
                name.iter_mut()
                    .zip(self.backend.serial().bytes())
                    .for_each(|(to, from)| *to = from);
                let filled = scatter(memory, &first.target, &name);
                Err(filled.map_or((Status::Failed, 0), |filled| (Status::Fine, filled)))
            }
            kind::DISCARD | kind::WRITE_ZEROES => self.zero(first, memory).map_err(failed),
            _ => Err((Status::Unsupported, 0)),
        }
    }

    /// Where on the disk a transfer is, in bytes.
    fn place(&self, request: &Request) -> Result<u64, Status> {
        self.range(request.sector, request.bytes_moved())
    }

    /// Where so many bytes from a sector on are, if they are whole sectors of the disk.
    fn range(&self, sector: u64, bytes: u64) -> Result<u64, Status> {
        let start = sector.checked_mul(SECTOR_BYTES).ok_or(Status::Failed)?;
        let end = start.checked_add(bytes).ok_or(Status::Failed)?;
        let fits = bytes.is_multiple_of(SECTOR_BYTES) && end <= self.backend.bytes();
        if fits { Ok(start) } else { Err(Status::Failed) }
    }

    /// Discard, or write zeroes to, one range (5.2.6.2). What is discarded is zero as well.
    fn zero(&self, request: &Request, memory: &dyn Memory) -> Result<Job, Status> {
        if !self.backend.can_discard() {
            return Err(Status::Unsupported);
        }
        self.must_be_writable()?;
        let mut range = [0; RANGE_BYTES];
        let mut source = request.source.clone();
        let taken = take_front(memory, &mut source, &mut range);
        taken.map_err(|_| Status::Failed)?;
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, f0, f1, f2, f3] = range;
        let sector = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let bytes = u64::from(u32::from_le_bytes([n0, n1, n2, n3])) * SECTOR_BYTES;
        let flags = u32::from_le_bytes([f0, f1, f2, f3]);
        let discards = request.kind == kind::DISCARD;
        if !source.is_empty() || flags & !UNMAP != 0 || discards && flags != 0 {
            return Err(Status::Unsupported);
        }
        let at = self.range(sector, bytes)?;
        if bytes > MAX_BLOCK_DISCARD_BYTES {
            return Err(Status::Failed);
        }
        Ok(Job::Zero { at, bytes, unmap: discards || flags & UNMAP != 0 })
    }

    fn must_be_writable(&self) -> Result<(), Status> {
        if self.backend.is_read_only() { Err(Status::Failed) } else { Ok(()) }
    }
}

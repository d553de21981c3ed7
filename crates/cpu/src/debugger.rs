//! Guest memory by linear address, for debuggers: as the current page tables map it, without a trace of the look.
//!
//! No accessed or dirty bit is set, no TLB is filled, and no right is asked for: a debugger puts breakpoints into pages
//! that the guest itself may not write. Device memory is not read, because reading it may have effects.

use crate::inspect::read_physical;
use crate::memory::access::{pieces, store};
use crate::memory::paging::look_up;
use crate::memory::{Linear, Physical};
use crate::vcpu::Vcpu;

/// A linear address that is mapped nowhere, or not to RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("linear address {0:#x} is not mapped to memory")]
pub struct Unmapped(pub u64);

impl Vcpu {
    /// Read guest memory at a linear address, all of `bytes` or nothing.
    ///
    /// # Errors
    ///
    /// [`Unmapped`] with the first address that is not memory.
    pub fn read_linear(&self, at: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        let places = self.places_of(at, bytes.len())?;
        let mut rest = bytes;
        for (physical, length) in places {
            let (piece, after) = rest.split_at_mut(length);
            read_physical(&self.arch.ram, physical.0, piece);
            rest = after;
        }
        Ok(())
    }

    /// Write guest memory at a linear address, all of `bytes` or nothing. Translations of what was there are dropped.
    ///
    /// # Errors
    ///
    /// As [`Self::read_linear`].
    pub fn write_linear(&mut self, at: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let places = self.places_of(at, bytes.len())?;
        let mut rest = bytes;
        for (physical, length) in places {
            let (piece, after) = rest.split_at(length);
            let host = self.arch.ram.host(physical).ok_or(Unmapped(at))?;
            self.arch.write_beside_code(physical, length, || store(host, piece));
            rest = after;
        }
        Ok(())
    }

    /// Where the bytes are, page by page.
    fn places_of(&self, at: u64, length: usize) -> Result<Vec<(Physical, usize)>, Unmapped> {
        let (ram, regs) = (&self.arch.ram, &self.arch.context.regs);
        let place = |(at, length): (Linear, usize)| {
            let found = look_up(ram, regs, at).filter(|&physical| ram.host(physical).is_some());
            found.map(|physical| (physical, length)).ok_or(Unmapped(at.0))
        };
        pieces(Linear(at), length).map(place).collect()
    }
}

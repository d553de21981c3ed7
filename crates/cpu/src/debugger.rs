//! A vCPU's memory and registers, for debuggers: guest memory as the current page tables map it, without a trace of the
//! look, and by guest-physical address.
//!
//! No accessed or dirty bit is set, no TLB is filled, and no right is asked for: a debugger puts breakpoints into pages
//! that the guest itself may not write. Device memory is not read, because reading it may have effects.

use crate::context::XSAVE_BYTES;
use crate::inspect::read_physical;
use crate::memory::access::{pieces, store};
use crate::memory::paging::look_up;
use crate::memory::{Linear, Physical};
use crate::saved::{Unfit, makes_sense};
use crate::state::Registers;
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
        self.write_pieces(places, bytes)
    }

    /// The guest-physical address of a linear one.
    ///
    /// # Errors
    ///
    /// [`Unmapped`] when no memory is there.
    pub fn physical_of(&self, at: u64) -> Result<u64, Unmapped> {
        self.places_of(at, 1)?.first().map(|(physical, _)| physical.0).ok_or(Unmapped(at))
    }

    /// Read guest-physical memory, all of `bytes` or nothing.
    ///
    /// # Errors
    ///
    /// [`Unmapped`] with the first address that is not memory.
    pub fn read_physical_memory(&self, at: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        self.check_physical(at, bytes.len())?;
        read_physical(&self.arch.ram, at, bytes);
        Ok(())
    }

    /// Write guest-physical memory, all of `bytes` or nothing. Translations of what was there are dropped.
    ///
    /// # Errors
    ///
    /// As [`Self::read_physical_memory`].
    pub fn write_physical_memory(&mut self, at: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        self.check_physical(at, bytes.len())?;
        let places = pieces(Linear(at), bytes.len());
        self.write_pieces(places.map(|(at, length)| (Physical(at.0), length)), bytes)
    }

    /// Write to memory piece by piece: so many bytes at each of these addresses.
    fn write_pieces(
        &mut self,
        places: impl IntoIterator<Item = (Physical, usize)>,
        mut bytes: &[u8],
    ) -> Result<(), Unmapped> {
        for (physical, length) in places {
            let (piece, rest) = bytes.split_at(length);
            let host = self.arch.ram.host(physical).ok_or(Unmapped(physical.0))?;
            self.arch.write_beside_code(physical, length, || store(host, piece));
            bytes = rest;
        }
        Ok(())
    }

    fn check_physical(&self, at: u64, length: usize) -> Result<(), Unmapped> {
        if at.checked_add(length as u64).is_none() {
            return Err(Unmapped(at));
        }
        let hole =
            pieces(Linear(at), length).find(|(at, _)| self.arch.ram.host(Physical(at.0)).is_none());
        hole.map_or(Ok(()), |(at, _)| Err(Unmapped(at.0)))
    }

    /// Set the registers, x87 and vector state with them, if given as the standard format of XSAVE.
    ///
    /// # Errors
    ///
    /// [`Unfit::Nonsense`] if no guest could have made them so; nothing is set then.
    pub fn set_state(
        &mut self,
        registers: &Registers,
        extended: Option<&[u8; XSAVE_BYTES]>,
    ) -> Result<(), Unfit> {
        let components = self.arch.system.components();
        let can_be_loaded =
            |area: &[u8; XSAVE_BYTES]| crate::interpret::can_be_loaded(area, components);
        if !makes_sense(registers, components) || !extended.is_none_or(can_be_loaded) {
            return Err(Unfit::Nonsense);
        }
        if registers.rip != self.arch.context.regs.rip {
            // What the instruction there waited for is not for another one.
            self.arch.replay.end();
        }
        *self.registers_mut() = *registers;
        if let Some(extended) = extended {
            *self.extended_state_mut() = *extended;
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

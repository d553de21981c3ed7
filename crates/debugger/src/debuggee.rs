//! What is asked of a machine that is debugged.

use std::os::fd::BorrowedFd;

use crate::registers::RegisterFile;

/// Which accesses are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Writes.
    Write,
    /// Reads.
    Read,
    /// Both.
    Access,
}

/// A range of linear addresses that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// The first byte.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// What for.
    pub kind: Watch,
}

/// Where a machine is to stop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Linear addresses of instructions.
    pub breakpoints: Vec<u64>,
    /// Accesses.
    pub watchpoints: Vec<Watched>,
}

/// How a processor goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Going {
    /// It stays where it is.
    Held,
    /// For one instruction.
    Step,
    /// Until something stops it.
    On,
}

/// Why a processor has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Its step is done.
    Step,
    /// There is a breakpoint at its next instruction.
    Breakpoint,
    /// It has accessed what is watched, at this linear address.
    Watchpoint(Watch, u64),
}

/// What an address is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Memory as the processor's page tables have it.
    Linear,
    /// Guest-physical memory.
    Physical,
}

/// The machine does not do that: nothing is there, the value cannot be set, or a processor does not stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine refuses")]
pub struct Refused;

/// A machine. Processors are counted from 0. But for [`Self::hold`], [`Self::event`] and [`Self::take_stop`], nothing
/// is asked before all processors stand still.
pub trait Debuggee {
    /// How many processors it has: one at least, always as many.
    fn processors(&self) -> usize;

    /// Have all processors stand still; whether they do.
    fn hold(&mut self) -> bool;

    /// Readable when a processor has stopped by itself.
    fn event(&self) -> BorrowedFd<'_>;

    /// A processor that has stopped by itself, and why; each is told once.
    fn take_stop(&mut self) -> Option<(usize, Stop)>;

    /// Have the processors go on, each as it is said, and stop at these places.
    ///
    /// # Errors
    ///
    /// [`Refused`]; what goes on then is to be held.
    fn go_on(&mut self, places: &Places, going: &[Going]) -> Result<(), Refused>;

    /// Stop nowhere any more, and go on.
    fn leave(&mut self);

    /// The registers of a processor.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    fn registers(&mut self, processor: usize) -> Result<RegisterFile, Refused>;

    /// Set those registers of a processor that can be set.
    ///
    /// # Errors
    ///
    /// [`Refused`] if a value is one that no guest could set; nothing is set then.
    fn set_registers(&mut self, processor: usize, registers: &RegisterFile) -> Result<(), Refused>;

    /// Read memory as a processor has it, without an effect; how many bytes there are from `at` on.
    ///
    /// # Errors
    ///
    /// [`Refused`] if there is none.
    fn read(
        &mut self,
        processor: usize,
        space: Space,
        at: u64,
        bytes: &mut [u8],
    ) -> Result<usize, Refused>;

    /// Write memory, whether or not the guest may.
    ///
    /// # Errors
    ///
    /// [`Refused`] if not all of it is there; nothing is written then.
    fn write(
        &mut self,
        processor: usize,
        space: Space,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Refused>;

    /// The guest-physical address of a linear one.
    ///
    /// # Errors
    ///
    /// [`Refused`] if no memory is there.
    fn physical_of(&mut self, processor: usize, at: u64) -> Result<u64, Refused>;

    /// End the machine.
    fn kill(&mut self);
}

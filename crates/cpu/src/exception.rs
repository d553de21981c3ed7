//! Exceptions and the other reasons for which an instruction does not complete.

use serde::{Deserialize, Serialize};

use crate::exit::Exit;

/// Exception vectors (SDM 3A table 6-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Vector {
    DivideError = 0,
    Debug = 1,
    NonMaskable = 2,
    Breakpoint = 3,
    Overflow = 4,
    BoundRange = 5,
    InvalidOpcode = 6,
    DeviceNotAvailable = 7,
    DoubleFault = 8,
    InvalidTss = 10,
    SegmentNotPresent = 11,
    StackFault = 12,
    GeneralProtection = 13,
    PageFault = 14,
    FloatingPoint = 16,
    AlignmentCheck = 17,
    MachineCheck = 18,
    SimdFloatingPoint = 19,
}

/// A fault or trap to be delivered through the guest's IDT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    /// Which one.
    pub vector: Vector,
    /// The error code, for the vectors that push one.
    pub error: Option<u32>,
    /// For #PF: the linear address for CR2. For #DB: the new low bits of DR6. Otherwise 0.
    pub payload: u64,
}

impl Exception {
    /// An exception that pushes no error code.
    pub const fn plain(vector: Vector) -> Self {
        Self { vector, error: None, payload: 0 }
    }

    /// An exception that pushes `error`.
    pub const fn with_error(vector: Vector, error: u32) -> Self {
        Self { vector, error: Some(error), payload: 0 }
    }

    /// #UD.
    pub const fn invalid_opcode() -> Self {
        Self::plain(Vector::InvalidOpcode)
    }

    /// #GP with `error` (0, or a selector-derived code, SDM 3A 6.13).
    pub const fn general_protection(error: u32) -> Self {
        Self::with_error(Vector::GeneralProtection, error)
    }

    /// #SS with `error`.
    pub const fn stack_fault(error: u32) -> Self {
        Self::with_error(Vector::StackFault, error)
    }

    /// #PF at linear address `address` with the error code of SDM 3A 4.7.
    pub const fn page_fault(address: u64, error: u32) -> Self {
        Self { vector: Vector::PageFault, error: Some(error), payload: address }
    }
}

/// Why an instruction did not complete. No register and no memory has changed when this is
/// returned, unless the instruction's manual page says otherwise (`rep` string instructions).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trap {
    /// Deliver this to the guest; RIP is still that of the instruction.
    Exception(Exception),
    /// Leave the processor. The instruction is executed again from its start after the answer.
    Exit(Exit),
}

impl From<Exception> for Trap {
    fn from(exception: Exception) -> Self {
        Self::Exception(exception)
    }
}

impl From<Exit> for Trap {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

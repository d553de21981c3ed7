//! The two numberings of a domain's frames.

use core::fmt;

use crate::{PAGE_SHIFT, Wire};

/// A page frame number: the guest's own, contiguous numbering ("pseudo-physical").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pfn(pub u64);

/// A machine frame number: what page tables and hypercalls name frames by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Mfn(pub u64);

impl Mfn {
    /// What stands where there is no frame, as in a P2M list.
    pub const INVALID: Self = Self(u64::MAX);

    /// The frame of a machine address.
    pub const fn of_address(address: u64) -> Self {
        Self(address >> PAGE_SHIFT)
    }

    /// The machine address of the frame's first byte.
    pub const fn address(self) -> u64 {
        self.0 << PAGE_SHIFT
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "PFN {:#x}", self.0)
    }
}

impl fmt::Display for Mfn {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "MFN {:#x}", self.0)
    }
}

macro_rules! numbers {
    ($($kind:ident),*) => {
        $(
            impl Wire for $kind {
                const BYTES: usize = 8;

                fn decode(bytes: &[u8]) -> Self {
                    Self(u64::decode(bytes))
                }

                fn encode(&self, bytes: &mut [u8]) {
                    self.0.encode(bytes);
                }
            }
        )*
    };
}

numbers!(Pfn, Mfn);

//! Addresses of host code, so that they are not taken for addresses of the guest's or for numbers.

use std::ops::{Add, Sub};

/// The host address of a place in translated code, or in the trampoline: where the host's processor
/// executes it (views.rs). The default is no place.
///
/// Fields of the context that translated code reads or writes hold such an address as a word; Rust
/// converts where it reads or writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub(crate) struct HostCode(pub(crate) u64);

impl HostCode {
    /// Whether it is a place.
    pub(crate) fn is_place(self) -> bool {
        self != Self::default()
    }

    /// Bytes from the start of a code cache, if the address is in its first 4 GiB.
    pub(crate) fn offset_from(self, start: HostCode) -> Option<u32> {
        u32::try_from(self.0.checked_sub(start.0)?).ok()
    }
}

/// So many bytes behind it.
impl Add<u64> for HostCode {
    type Output = HostCode;

    fn add(self, bytes: u64) -> HostCode {
        HostCode(self.0 + bytes)
    }
}

/// So many bytes before it.
impl Sub<u64> for HostCode {
    type Output = HostCode;

    fn sub(self, bytes: u64) -> HostCode {
        HostCode(self.0 - bytes)
    }
}

/// Bytes between two places, the second of which is not behind the first.
impl Sub for HostCode {
    type Output = u64;

    fn sub(self, start: HostCode) -> u64 {
        self.0 - start.0
    }
}

//! The addresses of the thunks by which blocks leave (thunk.rs).

use super::host_code::HostCode;
use super::scratch::Scratch;

/// Rings: for the kernel's code, for that which may access its users' memory, for users' code.
pub(super) const RINGS: usize = 3;

/// The key of a set of thunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ThunkKey {
    /// The block's scratch registers.
    pub(super) scratch: Option<Scratch>,
    /// GS is at the mirror.
    pub(super) kernel: bool,
}

/// The thunks for one choice of scratch registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thunks {
    pub(super) unlinked: Thunk,
    pub(super) lookup: Thunk,
    pub(super) interpret: Thunk,
    pub(super) assist: Thunk,
    pub(super) miss: Thunk,
    pub(super) call: Thunk,
    /// Look at the second line of the jump cache for the address in s0, with the guest's RCX in s2;
    /// then, from user code, for a block by its physical address.
    pub(super) second: HostCode,
    /// For the address in s0: the same looks after one at the first line, but once in sixteen times out
    /// to Rust to be linked; and the same always (cross_page.rs).
    pub(super) cross_page: HostCode,
    pub(super) refused: HostCode,
    /// For the address in s0 that a return has popped, with its mark in s1 (returns.rs), by ring.
    pub(super) returned: [HostCode; RINGS],
}

/// A thunk, with one entry for each place where the guest's RCX may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thunk {
    /// For when RCX has its guest value.
    pub(super) plain: HostCode,
    /// For when the guest's RCX is in s2.
    pub(super) with_rcx: HostCode,
}

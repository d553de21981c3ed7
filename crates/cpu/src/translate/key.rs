//! What a translation depends on besides the bytes that it is made from: where they are, and the modes
//! of the processor that it assumes.

use crate::memory::{Linear, PAGE_SIZE, Physical};
use crate::mode::GuestMode;

/// What a translation depends on besides its bytes. `linear` is the offset in the page if the
/// translation is relocatable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(super) physical: Physical,
    pub(super) linear: Linear,
    pub(super) mode: Mode,
    /// Every access is looked up by itself (coalesce.rs).
    pub(super) plain: bool,
}

/// User code below this address is relocatable: no direct jump leaves the lower half of the address
/// space from there.
const RELOCATABLE_END: u64 = 0x7fff_7000_0000;

impl Key {
    /// What lies at an address in some mode; not relocatable, unless it may be.
    pub(super) fn new(
        physical: Physical,
        linear: Linear,
        mode: Mode,
        plain: bool,
        may_relocate: bool,
    ) -> Self {
        let relocatable = may_relocate && mode.guest.is_user() && linear.0 < RELOCATABLE_END;
        let linear = if relocatable { Linear(linear.offset()) } else { linear };
        Self { physical, linear, mode, plain }
    }

    /// Whether the block may be executed at any linear address. (What is mapped at address zero is
    /// no exception.)
    pub(super) fn is_relocatable(&self) -> bool {
        self.mode.guest.is_user() && self.linear.0 < PAGE_SIZE
    }

    /// An address that is relative to the page if the block is relocatable.
    pub(super) fn relocated(&self, address: Linear, code_page: Linear) -> Linear {
        if self.is_relocatable() { address.plus(code_page.0) } else { address }
    }
}

/// The mode bits that a translation assumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Mode {
    /// Privilege; the code is 64-bit code.
    pub(crate) guest: GuestMode,
    /// Which x87 and vector instructions can run without further ado.
    pub(crate) vectors: Vectors,
    /// CR4.SMAP.
    pub(crate) smap: bool,
    /// EFER.SCE is set, and IA32_FMASK and IA32_STAR are as `syscall` wants them.
    pub(crate) fast_system_calls: bool,
    /// IA32_STAR, if that is so.
    pub(crate) star: u64,
    /// CR4.TSD.
    pub(crate) time_stamp_disabled: bool,
    /// The kernel's memory is reached through the mirror.
    pub(crate) native: bool,
    /// But not here, where the kernel may mean memory of its users (`Architectural::is_user_open`).
    pub(crate) user_open: bool,
    /// CR4.FSGSBASE.
    pub(crate) segment_bases: bool,
}

impl Mode {
    /// What of a mode the lines of jump caches have in common: kernel and user code have sets of
    /// their own, as have EFLAGS.AC clear and set under SMAP.
    pub(super) fn of_jumps(self) -> Mode {
        let guest = self.guest.of_jumps();
        Mode { guest, user_open: self.user_open && !self.smap, ..self }
    }
}

/// What CR0, CR4 and XCR0 have enabled, each level with those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) enum Vectors {
    /// Nothing: such instructions fault, or need a closer look.
    #[default]
    None,
    /// x87, MMX and SSE.
    Legacy,
    /// AVX.
    Avx,
    /// Everything that the host has.
    All,
}

//! The key of a translation: the addresses of the guest code, and the mode bits of the vCPU that the
//! translation assumes.

use crate::memory::tlb::jump_address;
use crate::memory::{Linear, PAGE_SIZE, Physical};
use crate::mode::GuestMode;

/// Everything that a translation depends on besides the guest's bytes. `linear` is the offset in the page if the
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
    /// The key of the code at an address in a mode; `may_relocate` allows it to be relocatable.
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
        let address = if self.is_relocatable() { address.plus(code_page.0) } else { address };
        self.mode.guest.linear(address)
    }

    /// Whether the code is 64-bit code, not 32-bit code ([`super::code_32`]).
    pub(super) fn is_64_bit(&self) -> bool {
        self.mode.guest.is_64_bit()
    }

    /// Where the jump caches have code of this kind that is at a linear address.
    pub(super) fn jump_address(&self, at: Linear) -> Linear {
        jump_address(at, self.is_64_bit())
    }
}

/// The mode bits that a translation assumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Mode {
    /// Privilege, and the code's size.
    pub(crate) guest: GuestMode,
    /// Which x87 and vector instructions can run without a check.
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
    /// The exception: accesses are looked up, because the kernel may mean memory of its users
    /// (`Architectural::is_user_open`).
    pub(crate) user_open: bool,
    /// CR4.FSGSBASE.
    pub(crate) segment_bases: bool,
    /// The guest's kernel is paravirtual.
    pub(crate) paravirtual: bool,
    /// FS and GS reach 4 GiB. For 32-bit code only.
    pub(crate) wide: [bool; 2],
}

impl Mode {
    /// The part of a mode that all lines of a jump cache have in common: kernel and user code have sets of
    /// their own, as have EFLAGS.AC clear and set under SMAP.
    /// `before` is what held until now of what only 32-bit code assumes.
    pub(super) fn of_jumps(self, before: Mode) -> Mode {
        let wide = if self.guest.is_64_bit() { before.wide } else { self.wide };
        let guest = self.guest.of_jumps();
        Mode { guest, user_open: self.user_open && !self.smap, wide, ..self }
    }
}

/// The extended state that CR0, CR4 and XCR0 have enabled; each level includes those before it.
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

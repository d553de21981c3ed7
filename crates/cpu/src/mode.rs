//! The mode that the guest's code runs in, and the predicates on it.
//!
//! Whether code is the kernel's is a property of the mode and not a ring: a paravirtual kernel takes itself to be
//! in ring 3, and the engine has it in ring 0 ([`crate::paravirtual`]). So code that means "the kernel" or "a user
//! program" asks this type. Only the checks of segmentation compare privilege levels with each other
//! (`Registers::cpl`), because the manual does.

use crate::memory::Linear;
use crate::state::{CodeSize, Registers, rflags};

/// Privilege, 64-bit code or not, and virtual-8086 mode, in one byte: it is part of every block's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct GuestMode(u8);

/// Bits 1:0 are the current privilege level.
const RING: u8 = 3;

/// Code at CS:RIP is 64-bit code.
const CODE_64: u8 = 1 << 2;

/// EFLAGS.VM.
const VIRTUAL_8086: u8 = 1 << 3;

/// The ring of user programs.
const USER_RING: u8 = 3;

impl GuestMode {
    /// The mode of code in ring `cpl` (0 to 3).
    #[inline]
    pub(crate) const fn new(cpl: u8, is_64_bit: bool, is_virtual_8086: bool) -> Self {
        let code = if is_64_bit { CODE_64 } else { 0 };
        let virtual_8086 = if is_virtual_8086 { VIRTUAL_8086 } else { 0 };
        Self(cpl & RING | code | virtual_8086)
    }

    /// The mode of 64-bit code in ring `cpl`.
    #[inline]
    pub(crate) const fn of_64_bit_code(cpl: u8) -> Self {
        Self::new(cpl, true, false)
    }

    /// A user program: its data accesses have user rights, and what is privileged faults.
    #[inline]
    pub const fn is_user(self) -> bool {
        self.cpl() == USER_RING
    }

    /// The guest's kernel, which may do everything. (Rings 1 and 2 are neither the kernel nor a user program.)
    #[inline]
    pub const fn is_kernel(self) -> bool {
        self.cpl() == 0
    }

    /// Code at CS:RIP is 64-bit code (not compatibility mode).
    #[inline]
    pub const fn is_64_bit(self) -> bool {
        self.0 & CODE_64 != 0
    }

    /// Bits of an address in code that is translated: 64 or 32.
    #[inline]
    pub(crate) const fn bits(self) -> u32 {
        if self.is_64_bit() { 64 } else { 32 }
    }

    /// An address as code of this mode that is translated computes it: one of 32-bit code wraps at 4 GiB.
    #[inline]
    pub(crate) fn linear(self, at: Linear) -> Linear {
        if self.is_64_bit() { at } else { at.low() }
    }

    /// Virtual-8086 mode (SDM 3B 21.2).
    #[inline]
    pub const fn is_virtual_8086(self) -> bool {
        self.0 & VIRTUAL_8086 != 0
    }

    /// Whether privileged instructions are executed, and not #GP(0) (SDM 3A 6.9).
    #[inline]
    pub const fn may_execute_privileged(self) -> bool {
        self.is_kernel()
    }

    /// Whether CPL <= IOPL, for the value of RFLAGS (SDM 1 19.5.1): ports are open, and IF can be changed.
    #[inline]
    pub const fn has_io_privilege(self, flags: u64) -> bool {
        self.cpl() <= ((flags & rflags::IOPL) >> 12) as u8
    }

    /// The current privilege level, 0 to 3, where a number is wanted: reports, and names of blocks.
    #[inline]
    pub const fn cpl(self) -> u8 {
        self.0 & RING
    }

    /// What the jump cache of this mode is shared with: kernel and user programs have TLBs of their own, and 32-bit
    /// code has other addresses in it, so that one set of assumptions holds for all.
    #[inline]
    pub(crate) const fn of_jumps(self) -> Self {
        let ring = if self.is_user() { 0 } else { self.cpl() };
        Self(self.0 & !(RING | CODE_64) | ring)
    }
}

impl std::fmt::Debug for GuestMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let code = if self.is_64_bit() { ", 64-bit" } else { "" };
        let virtual_8086 = if self.is_virtual_8086() { ", virtual-8086" } else { "" };
        write!(f, "GuestMode(ring {}{code}{virtual_8086})", self.cpl())
    }
}

impl Registers {
    /// The mode that code at CS:RIP runs in.
    #[inline]
    pub fn mode(&self) -> GuestMode {
        let is_64_bit = self.code_size() == CodeSize::Bits64;
        GuestMode::new(self.cpl, is_64_bit, self.rflags() & rflags::VM != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_and_user_are_rings_0_and_3() {
        let rights = |cpl| {
            let mode = GuestMode::of_64_bit_code(cpl);
            (mode.is_kernel(), mode.is_user(), mode.may_execute_privileged())
        };
        assert_eq!(rights(0), (true, false, true));
        assert_eq!(rights(1), (false, false, false));
        assert_eq!(rights(2), (false, false, false));
        assert_eq!(rights(3), (false, true, false));
    }

    #[test]
    fn io_privilege_is_a_level_in_the_flags() {
        for (cpl, iopl) in (0..4).flat_map(|cpl| (0..4).map(move |iopl| (cpl, iopl))) {
            let mode = GuestMode::new(cpl, false, false);
            assert_eq!(mode.has_io_privilege(u64::from(iopl) << 12 | 2), cpl <= iopl);
        }
    }

    #[test]
    fn jump_caches_tell_kernel_and_user_apart_by_their_sets() {
        let [kernel, ring_1, user] = [0, 1, 3].map(GuestMode::of_64_bit_code);
        assert_eq!(kernel.of_jumps(), user.of_jumps());
        assert_ne!(kernel.of_jumps(), ring_1.of_jumps());
    }
}

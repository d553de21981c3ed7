//! Locked instructions outside translated code.
//!
//! A call-out works on a copy of its operand, which other vCPUs do not see. So the interpreter runs a
//! locked instruction on a copy of the operand, and then compares and exchanges: the result is stored only if
//! memory still holds the copied value. If it does not, the instruction starts over with the registers that it
//! started with. The result depends on nothing else, so that this is the same as a locked bus.
//!
//! This holds for operands in RAM that do not cross their natural alignment. Others (split locks,
//! devices) are read and written separately.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use iced_x86::Instruction;

use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::instruction::{MemoryUse, is_locked};
use crate::memory::{Access, Linear, Place, Privilege};

/// Put `new` at `host` if `old` is there.
///
/// # Safety
///
/// `host` must be RAM for the length of both, which is the same, a power of two of at most 16, and
/// divides the address.
unsafe fn exchange(host: *mut u8, old: &[u8], new: &[u8]) -> bool {
    macro_rules! exchange {
        ($atomic:ty, $integer:ty) => {{
            let [old, new] = [old, new].map(|bytes| {
                <$integer>::from_ne_bytes(bytes.try_into().expect("the length was looked at"))
            });
            // SAFETY: aligned RAM, by the caller's promise.
            let cell = unsafe { &*host.cast::<$atomic>() };
            cell.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        }};
    }
    match old.len() {
        1 => exchange!(AtomicU8, u8),
        2 => exchange!(AtomicU16, u16),
        4 => exchange!(AtomicU32, u32),
        8 => exchange!(AtomicU64, u64),
        // SAFETY: as above; all processors that can run translated code have CMPXCHG16B.
        _ => unsafe { exchange_16(host, old, new) },
    }
}

/// [`exchange`] of 16 bytes.
///
/// # Safety
///
/// As for [`exchange`].
unsafe fn exchange_16(host: *mut u8, old: &[u8], new: &[u8]) -> bool {
    let half = |bytes: &[u8], at: usize| {
        u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    let done: u8;
    // SAFETY: the operand is aligned RAM by the caller's promise; RBX is the compiler's, so it is
    // exchanged with a register that is not.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {low}",
            "lock cmpxchg16b [{place}]",
            "sete {done}",
            "mov rbx, {low}",
            low = inout(reg) half(new, 0) => _,
            place = in(reg) host,
            done = out(reg_byte) done,
            inout("rax") half(old, 0) => _,
            inout("rdx") half(old, 8) => _,
            in("rcx") half(new, 8),
            options(nostack),
        );
    }
    done != 0
}

impl Architectural {
    /// Where a locked instruction's operand is in RAM, and whether it may be written there as it is;
    /// `None` if the instruction is not one that is done here.
    ///
    /// # Errors
    ///
    /// The page fault of the operand.
    pub(super) fn locked_operand(
        &mut self,
        instruction: &Instruction,
        linear: Linear,
        operand: MemoryUse,
    ) -> Result<Option<Place>, Trap> {
        let natural = operand.size.is_power_of_two()
            && operand.size <= 16
            && linear.0.is_multiple_of(operand.size as u64);
        if !is_locked(instruction) || !natural {
            return Ok(None);
        }
        let place = self.translate_linear(linear, Access::Write, Privilege::Current)?;
        Ok(matches!(place, Place::Ram(..)).then_some(place))
    }

    /// Run a locked instruction, already moved to the bounce buffer, on the operand at `place`.
    ///
    /// # Errors
    ///
    /// As [`Architectural::call_out`]; nothing has changed then.
    pub(super) fn run_locked(
        &mut self,
        moved: &Instruction,
        place: Place,
        size: usize,
    ) -> Result<(), Trap> {
        let Place::Ram(host, physical) = place else { return Ok(()) };
        let before = (self.context.regs, self.context.native_flags);
        loop {
            let mut old = [0u8; 16];
            let old = &mut old[..size];
            // SAFETY: RAM for the length of the operand, which does not leave its page. What is
            // read may be torn; the exchange then fails.
            unsafe { std::ptr::copy_nonoverlapping(host, old.as_mut_ptr(), size) };
            self.context.bounce.0[..size].copy_from_slice(old);
            self.call_out(moved)?;
            let mut new = [0u8; 16];
            let new = &mut new[..size];
            new.copy_from_slice(&self.context.bounce.0[..size]);
            // SAFETY: aligned RAM of this length: `locked_operand` has looked.
            let exchanged =
                self.write_beside_code(physical, size, || unsafe { exchange(host, old, new) });
            if exchanged {
                return Ok(());
            }
            (self.context.regs, self.context.native_flags) = before;
        }
    }
}

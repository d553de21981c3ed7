//! 32-bit code: programs in compatibility mode, and the protected mode of firmware and of 32-bit kernels.
//!
//! Translated code runs in 64-bit mode, which has nearly all instructions of 32-bit code, some of them under other
//! opcodes. So an instruction of a 32-bit block is decoded as what it is and then *lifted*: replaced by the one of
//! 64-bit mode that has the same effect ([`lift`]), which goes the way of all others. What cannot be lifted
//! (16-bit addresses, what 64-bit mode does not have), and what means something else there
//! ([`means_the_same`]), is the interpreter's. The rules:
//!
//! 1. *Segments are flat.* Only code is translated of which CS, SS, DS and ES begin at 0, reach 4 GiB and have the
//!    usual types ([`is_flat`]), as Linux and firmware have them, so that an offset is a linear address and no limit
//!    can be exceeded. FS and GS have bases, of which a linear address is a sum that wraps at 4 GiB. Which of the two
//!    reach as far is a part of a block's mode; through the other, accesses are the interpreter's.
//! 2. *Nothing reads the upper halves of registers*, which are what 64-bit code has left in them. Addresses are
//!    computed with an address size of 32 bits, the stack pointer's too.
//! 3. *Addresses have 32 bits.* What a block adds to its page's address is cut off at 4 GiB
//!    ([`Key::relocated`](super::key::Key::relocated), `Builder::address`).
//! 4. *The jump caches tell 32-bit code from 64-bit code*, which may be the same bytes at the same address: they have
//!    it, and the rings of returns, under its [jump address](crate::memory::tlb::jump_address). The physical jumps have
//!    only 64-bit code.
//!
//! An access at the end of the 4 GiB would go on at address 0. It crosses a page, misses its look-up, and is the
//! interpreter's, as second ways ([`super::crossing`]) refuse it. A coalesced range that wraps crosses a page as well;
//! where none of its addresses wraps, they are as far apart as their displacements.

use iced_x86::{Instruction, OpKind, Register};

use super::key::Mode;
use crate::instruction::{Class, address_bits, encodable, names_memory};
use crate::memory::Linear;
use crate::state::{Attributes, CodeSize, Registers, Segment, SegmentRegister};

/// Whether code at CS:RIP is 32-bit code that may be translated.
pub(crate) fn is_flat(regs: &Registers) -> bool {
    use SegmentRegister::{Cs, Ds, Es, Ss};
    regs.code_size() == CodeSize::Bits32
        && [Cs, Ss, Ds, Es].into_iter().all(|which| regs.segment(which).base == 0)
        && regs.segment(Cs).attributes.contains(Attributes::CODE)
        && regs.segment(Cs).limit == u32::MAX
        && [Ss, Ds, Es].into_iter().all(|which| reaches_all(regs.segment(which)))
        && regs.segment(Ss).attributes.contains(Attributes::BIG)
}

/// Whether FS and GS reach 4 GiB.
pub(super) fn wide_segments(regs: &Registers) -> [bool; 2] {
    [SegmentRegister::Fs, SegmentRegister::Gs].map(|which| reaches_all(regs.segment(which)))
}

/// Whether data may be read and written at every offset in a segment (SDM 3A 5.3 to 5.5).
fn reaches_all(segment: &Segment) -> bool {
    let unusual = Attributes::UNUSABLE | Attributes::CODE | Attributes::EXPAND_DOWN;
    segment.limit == u32::MAX
        && segment.attributes.contains(Attributes::WRITABLE)
        && !segment.attributes.intersects(unusual)
}

/// The instruction of 64-bit mode that has the effect of an instruction of 32-bit code, if there is one. Where it leads
/// is a distance from the block's page if the block is relocatable.
pub(super) fn lift(instruction: &Instruction, is_relocatable: bool) -> Option<Instruction> {
    let mut lifted = *instruction;
    lifted.set_code(encodable(instruction.code()));
    if instruction.op0_kind() == OpKind::NearBranch32 {
        let target = instruction.near_branch32();
        lifted.set_op0_kind(OpKind::NearBranch64);
        lifted.set_near_branch64(match is_relocatable {
            // What is before the block's page has a negative distance from it.
            true => i64::from(target as i32) as u64,
            false => u64::from(target),
        });
    }
    if names_memory(instruction) {
        if address_bits(instruction, CodeSize::Bits32) != 32 {
            return None;
        }
        let displacement = instruction.memory_displacement64();
        let registers = [instruction.memory_base(), instruction.memory_index()];
        lifted.set_memory_displacement64(match registers == [Register::None; 2] {
            true => Linear(displacement).low().0,
            false => i64::from(displacement as i32) as u64,
        });
    }
    Some(lifted)
}

/// Whether what is known of 64-bit code of a class holds for a lifted instruction.
pub(super) fn means_the_same(lifted: &Instruction, class: Class, mode: Mode) -> bool {
    let [fs, gs] = mode.wide;
    let reaches = match lifted.memory_segment() {
        Register::FS => fs,
        Register::GS => gs,
        // Code segments cannot be written, and need not be readable.
        Register::CS => false,
        _ => true,
    };
    // Outside 64-bit mode, `vzeroall` and `vzeroupper` clear only the first eight registers.
    let is_shared = matches!(
        class,
        Class::Plain
            | Class::Hint
            | Class::NoOperation
            | Class::LoadEffectiveAddress
            | Class::JumpConditionally
            | Class::JumpNear
            | Class::CallNear
            | Class::ReturnNear
            | Class::Push
            | Class::Pop
            | Class::LeaveFrame
            | Class::String
            | Class::InterruptFlag
            | Class::TimeStamp
            | Class::TimeStampAndProcessor
            | Class::StoreSegment
            | Class::StoreTable
            | Class::Identify
            | Class::GetExtendedControl
    );
    reaches && (is_shared || class.is_extended_state())
}

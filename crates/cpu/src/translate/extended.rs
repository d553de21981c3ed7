//! The XSAVE family in blocks (SDM 1 chapter 13).
//!
//! `xsave`, `xsaveopt`, `xsavec`, `xrstor`, `fxsave` and `fxrstor` need no privilege, and the guest's
//! extended state has the host's format; so the host executes them, on the kernel's memory in the
//! mirror, with the guest's state loaded as for any instruction that touches it
//! (native/trampoline.rs). A context switch of a kernel then needs no Rust for it. What keeps it exact:
//!
//! 1. *XCR0.* A block assumes that the guest has switched on all components that can be carried
//!    ([`Vectors::All`](super::key::Vectors)). The host may have switched on more (PKRU, AMX), which the guest must
//!    neither save nor load: if EDX:EAX names one of these, or if an area's header does, where the guest's
//!    processor raises #GP, the interpreter is asked. Where the host has no more, this is never so.
//! 2. *Faults.* What is not in the mirror is filled in, and the instruction begins again, which it can:
//!    a save reads no register that it writes, and a restore writes the same registers again. The host's
//!    #GP (an area that is not aligned, a header that no save has written, a bad MXCSR) and
//!    a user's address have the instruction translated again without the mirror, and then the interpreter
//!    says what it means.
//! 3. *XSAVEOPT's optimizations* (SDM 1 13.9) go by the area that was restored from last. That is an
//!    area of the guest's, where it has executed `xrstor` on it since state was loaded, or the image in the
//!    context, which no guest can name.
//!
//! What is not the kernel's own memory (signal frames, areas on a user's stack) is for Rust (assist.rs).

use iced_x86::{Instruction, MemoryOperand, Register};

use super::action::Assistance;
use super::builder::{Builder, Later};
use super::emit::{at, gpr32};
use super::key::{Mode, Vectors};
use crate::context::context_offset;
use crate::instruction::{Class, MemoryUse, class_of};

/// Where XSTATE_BV and XCOMP_BV are in an area.
const STATE: i32 = 512;
const FORMAT: i32 = 520;

/// How an area is used, as far as the mirror goes by it: not at all.
const AREA: MemoryUse = MemoryUse { size: 1, reads: true, writes: true };

/// Whether the instructions of a class are `fxsave` or `fxrstor`, which know no components.
fn is_legacy(class: Class) -> bool {
    matches!(class, Class::Fxsave | Class::Fxrstor)
}

/// Whether the host may execute an instruction of the family where its operand is the kernel's.
pub(super) fn runs_on_mirror(instruction: &Instruction, mode: Mode) -> bool {
    let class = class_of(instruction.code());
    let needed = if is_legacy(class) { Vectors::Legacy } else { Vectors::All };
    class.is_extended_state()
        && !instruction.has_lock_prefix()
        && mode.guest.is_kernel()
        && mode.native
        && mode.vectors >= needed
}

impl Builder<'_> {
    /// An instruction of the family. False if the block ends with it.
    pub(super) fn extended_state(&mut self, instruction: &Instruction, mark: u32) -> bool {
        if !self.native {
            self.assist(Assistance::Onwards, instruction, mark);
            return true;
        }
        if is_legacy(class_of(instruction.code())) {
            return self.on_memory(instruction, AREA, mark);
        }
        self.instructions.push((mark, *instruction));
        self.require_own_components(instruction, mark);
        if !self.on_memory(instruction, AREA, mark) {
            self.way_out(self.thunks().assist.plain, mark);
        }
        self.goes_on(mark);
        true
    }

    /// Ask for help unless only components are named that are the guest's own.
    fn require_own_components(&mut self, instruction: &Instruction, mark: u32) {
        let [s0, s1, s2] = self.s();
        let foreign = context_offset!(foreign_mask);
        self.out.constant(s1, 0);
        if class_of(instruction.code()) == Class::Xrstor {
            // These may fault; no register of the guest's has changed.
            self.operand_address(instruction);
            let part = |offset| MemoryOperand {
                segment_prefix: Register::GS,
                ..at(s0, Register::None, offset)
            };
            self.out.load(s1, part(STATE));
            self.out.extract(s1, s1, foreign);
            self.out.load(s2, part(FORMAT));
            self.out.extract(s2, s2, foreign);
            self.out.lea(s1, at(s1, s2, 0));
        }
        self.out.copy32(gpr32(s0), Register::EDX);
        self.out.rotate(s0, s0, 32);
        self.out.copy32(gpr32(s2), Register::EAX);
        self.out.lea(s0, at(s0, s2, 0));
        self.out.extract(s0, s0, foreign);
        self.out.lea(s0, at(s0, s1, 0));
        self.out.copy(s2, Register::RCX);
        self.out.copy(Register::RCX, s0);
        let foreign = self.out.jump_unless_rcx_zero();
        self.postpone(Later::Assist { at: foreign, mark });
        self.out.copy(Register::RCX, s2);
    }
}

//! What a paravirtual kernel does at each switch between threads that is Rust's as a rule (assist.rs), and that a block
//! does itself in the one case that there is:
//!
//! - `rdmsr` reads the base of GS that is not loaded. Such a kernel cannot exchange the bases to read the other one
//!   (`swapgs` is the hypervisor's).
//! - `mov` loads FS with selector 0, before the hypervisor is asked to load its base.

use iced_x86::{Instruction, Register};

use super::builder::{Builder, Later};
use super::emit::{at, field, gpr32};
use super::reach::segment_base;
use crate::context::register_offset;
use crate::state::{Attributes, Segment};

/// IA32_KERNEL_GS_BASE (SDM 4 2.1).
const OTHER_GS_BASE: u32 = 0xc000_0102;

/// Limit, selector and attributes of a segment register with selector 0, as one word.
const NULL: u64 = (Attributes::UNUSABLE.bits() as u64) << 48;

/// Where that word is, behind the base.
const BEHIND_BASE: i32 = std::mem::offset_of!(Segment, limit) as i32;

const _: () = assert!(
    std::mem::offset_of!(Segment, base) == 0
        && BEHIND_BASE == 8
        && std::mem::offset_of!(Segment, attributes) == 14
        && size_of::<Segment>() == 16
);

impl Builder<'_> {
    /// `rdmsr` by the kernel.
    pub(super) fn read_msr(&mut self, mark: u32) {
        let [s0, _, s2] = self.s();
        self.out.copy(s2, Register::RCX);
        let distance = OTHER_GS_BASE.wrapping_neg() as i32;
        self.out.lea(Register::RCX, at(Register::RCX, Register::None, distance));
        // The upper half of RCX means nothing.
        self.out.copy32(Register::ECX, Register::ECX);
        self.assist_unless_rcx_zero(mark);
        self.out.load(s0, field(register_offset!(kernel_gs_base)));
        self.out.copy32(Register::EAX, gpr32(s0));
        self.out.rotate(Register::RDX, s0, 32);
        self.out.copy32(Register::EDX, Register::EDX);
        self.goes_on(mark);
    }

    /// `mov` of a register to FS by the kernel.
    pub(super) fn load_fs(&mut self, instruction: &Instruction, mark: u32) {
        let [_, _, s2] = self.s();
        self.out.copy(s2, Register::RCX);
        // Of more bits than the selector has: another value than 0 is Rust's.
        let source = gpr32(instruction.op1_register().full_register());
        self.out.copy32(Register::ECX, source);
        self.assist_unless_rcx_zero(mark);
        let base = segment_base(Register::FS);
        self.out.set_field64(base, 0);
        self.out.set_field64(base + BEHIND_BASE, NULL);
        self.goes_on(mark);
    }

    /// Have Rust execute the instruction unless RCX, whose guest value is in s2, is zero.
    fn assist_unless_rcx_zero(&mut self, mark: u32) {
        let [_, _, s2] = self.s();
        let other = self.out.jump_unless_rcx_zero();
        self.postpone(Later::Assist { at: other, mark });
        self.out.copy(Register::RCX, s2);
    }
}

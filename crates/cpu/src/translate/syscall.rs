//! `syscall` and `sysretq` inside translated code (SDM 2B "SYSCALL", "SYSRET").
//!
//! Both are translated only under [`Mode::fast_system_calls`](super::Mode), which says that
//! EFER.SCE is set and that IA32_FMASK clears every flag that the host's register carries as well as
//! IF, TF, AC and NT: then the flags after `syscall` are a constant. `sysretq` tests first whether
//! the return needs the interpreter: a target that is not canonical, a delicate flag in R11, or a machine
//! that waits for interrupts to be enabled. To a thread that may have to run directly it returns by the run loop.

use iced_x86::{Code, Instruction, Register};

use super::builder::Builder;
use super::emit::{at, field};
use crate::context::{context_offset, register_offset};
use crate::memory::Linear;
use crate::state::{Registers, Segment, rflags};

/// Flags that IA32_FMASK must clear for the fast path: what Linux has cleared since 5.x, and more
/// than any other kernel needs.
pub(super) const CLEARED_FLAGS: u64 =
    rflags::NATIVE | rflags::IF | rflags::TF | rflags::AC | rflags::NT;

/// Attributes of flat 64-bit code and of flat data at CPL 0, with limit 4 GiB - 1.
pub(super) const KERNEL_CODE: u64 = 0xa09b;
pub(super) const KERNEL_DATA: u64 = 0xc093;
pub(super) const USER_CODE: u64 = 0xa0fb;
pub(super) const USER_DATA: u64 = 0xc0f3;

/// Offset of a segment register's fields from FS.
fn segment_offset(number: usize) -> i32 {
    (std::mem::offset_of!(crate::context::Context, regs)
        + std::mem::offset_of!(Registers, segments)
        + number * size_of::<Segment>()) as i32
}

/// A flat segment: its selector and its attributes.
pub(super) type FlatSegment = (u64, u64);

/// The selectors of code that `syscall` and `sysretq` load; SS's are 8 more and 8 less.
pub(super) fn kernel_selector(star: u64) -> u64 {
    star >> 32 & 0xfffc
}

/// See [`kernel_selector`].
pub(super) fn user_selector(star: u64) -> u64 {
    (star >> 48).wrapping_add(16) & 0xffff | 3
}

impl Builder<'_> {
    /// `syscall` from CPL 3.
    pub(super) fn system_call(&mut self, instruction: &Instruction) {
        let [s0, s1, _] = self.s();
        let back = instruction.next_ip();
        self.compose_flags();
        self.out.copy(Register::R11, s0);
        self.address(Register::RCX, Linear(back));
        self.out.load(s1, field(context_offset!(regs) + crate::state::FLAGS_OFFSET));
        self.masked(s1, context_offset!(after_system_call));
        self.out.store(field(context_offset!(regs) + crate::state::FLAGS_OFFSET), s1);
        self.out.set_field8(register_offset!(interrupt_flag), 0);
        self.out.set_field8(register_offset!(alignment_flag), 0);
        self.count(context_offset!(system_calls), s1);
        let code = kernel_selector(self.star);
        let stack = ((code + 8) & 0xffff, KERNEL_DATA);
        self.set_privilege(0, (code, KERNEL_CODE), stack);
        self.use_tlb(true, context_offset!(kernel_tlb));
        // 1 + 0: every status flag is clear afterwards.
        self.out.constant(s0, 1);
        let add = Instruction::with2(Code::Add_rm64_imm8, s0, 0);
        self.out.instruction(&add.expect("operands fit the code"));
        self.out.raw(&[0xfc]);
        self.out.load(s0, field(register_offset!(lstar)));
        self.leave_indirect();
    }

    /// `sysretq` from CPL 0.
    pub(super) fn system_return(&mut self, mark: u32) {
        let [s0, s1, s2] = self.s();
        self.out.copy(s2, Register::RCX);
        self.out.extract(s0, Register::R11, context_offset!(delicate_mask));
        self.out.extract(s1, Register::RCX, context_offset!(upper_mask));
        self.out.lea(s0, at(s0, s1, 0));
        self.out.load_byte(s1, field(context_offset!(window_wanted)));
        self.out.lea(s0, at(s0, s1, 0));
        self.out.copy(Register::RCX, s0);
        self.interpret_unless_rcx_zero(mark);
        self.out.copy(Register::RCX, s2);
        self.out.set_field64(context_offset!(regs) + crate::state::FLAGS_OFFSET, rflags::FIXED);
        self.out.extract(s1, Register::R11, context_offset!(interrupt_mask));
        self.out.store_byte(field(register_offset!(interrupt_flag)), s1);
        self.out.set_field8(register_offset!(alignment_flag), 0);
        let code = user_selector(self.star);
        let stack = ((code - 8) & 0xffff, USER_DATA);
        self.set_privilege(3, (code, USER_CODE), stack);
        self.use_tlb(false, context_offset!(user_tlb));
        self.load_native_flags(Register::R11);
        self.out.copy(s0, Register::RCX);
        self.come_to_run_loop_if_direct();
        self.leave_indirect();
    }

    /// User code at the address in s0 is about to be entered. Where some of its address space's threads run
    /// directly, the run loop decides which way: as if the jump cache did not have it.
    pub(super) fn come_to_run_loop_if_direct(&mut self) {
        let [s0, _, s2] = self.s();
        self.out.copy(s2, Register::RCX);
        self.out.load_byte(Register::RCX, field(context_offset!(direct_wanted)));
        let on = self.out.jump_if_rcx_zero();
        self.out.copy(Register::RCX, s2);
        self.out.store(field(register_offset!(rip)), s0);
        self.out.jump(self.thunks().lookup.plain);
        let here = self.out.here();
        self.out.patch(on, here);
        self.out.copy(Register::RCX, s2);
    }

    /// CPL, CS and SS: flat segments, by selector and attributes.
    pub(super) fn set_privilege(&mut self, cpl: u8, code: FlatSegment, stack: FlatSegment) {
        let [_, s1, _] = self.s();
        self.out.set_field8(register_offset!(cpl), cpl);
        for (number, (selector, kind)) in [(1, code), (2, stack)] {
            self.out.set_field64(segment_offset(number), 0);
            self.out.constant(s1, 0xffff_ffff | selector << 32 | kind << 48);
            self.out.store(field(segment_offset(number) + 8), s1);
        }
    }
}

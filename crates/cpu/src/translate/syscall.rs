//! `syscall` and `sysretq` inside translated code (SDM 2B "SYSCALL", "SYSRET").
//!
//! Both are translated only under [`Mode::fast_system_calls`](super::Mode), which says that
//! EFER.SCE is set and that IA32_FMASK clears every flag that the host's register carries as well as
//! IF, TF, AC and NT: then the flags after `syscall` are a constant. `sysretq` tests first whether
//! the return needs the interpreter: a target that is not canonical, a delicate flag in R11, or a
//! machine that waits for interrupts to be enabled.

use iced_x86::{Code, Instruction, Register};

use super::emit::{at, field};
use super::generate::Builder;
use crate::context::{context_offset, register_offset};
use crate::state::{Registers, Segment, rflags};

/// Flags that IA32_FMASK must clear for the fast path: what Linux has cleared since 5.x, and more
/// than any other kernel needs.
pub(super) const CLEARED_FLAGS: u64 =
    rflags::NATIVE | rflags::IF | rflags::TF | rflags::AC | rflags::NT;

/// Attributes of flat 64-bit code and of flat data at CPL 0, with limit 4 GiB - 1.
const KERNEL_CODE: u64 = 0xa09b;
const KERNEL_DATA: u64 = 0xc093;
const USER_CODE: u64 = 0xa0fb;
const USER_DATA: u64 = 0xc0f3;

/// Offset of a segment register's fields from FS.
fn segment_offset(number: usize) -> i32 {
    (std::mem::offset_of!(crate::context::Context, regs)
        + std::mem::offset_of!(Registers, segments)
        + number * size_of::<Segment>()) as i32
}

impl Builder<'_> {
    /// `syscall` from CPL 3.
    pub(super) fn system_call(&mut self, instruction: &Instruction) {
        let [s0, s1, _] = self.s();
        let back = instruction.next_ip();
        self.compose_flags();
        self.out.copy(Register::R11, s0);
        self.out.constant(Register::RCX, back);
        self.out.load(s1, field(context_offset!(regs) + crate::state::FLAGS_OFFSET));
        self.masked(s1, context_offset!(after_system_call));
        self.out.store(field(context_offset!(regs) + crate::state::FLAGS_OFFSET), s1);
        self.out.set_field8(register_offset!(interrupt_flag), 0);
        self.out.set_field8(register_offset!(alignment_flag), 0);
        self.set_privilege(0, self.star >> 32 & 0xfffc, KERNEL_CODE, KERNEL_DATA);
        self.out.load(s0, field(context_offset!(kernel_set)));
        self.out.set_gs_base(s0);
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
        self.out.lea(Register::RCX, at(s0, s1, 0));
        self.interpret_unless_rcx_zero(mark);
        self.out.copy(Register::RCX, s2);
        self.out.set_field64(context_offset!(regs) + crate::state::FLAGS_OFFSET, rflags::FIXED);
        self.out.extract(s1, Register::R11, context_offset!(interrupt_mask));
        self.out.store_byte(field(register_offset!(interrupt_flag)), s1);
        self.out.set_field8(register_offset!(alignment_flag), 0);
        let code = (self.star >> 48).wrapping_add(16) & 0xffff | 3;
        self.set_privilege(3, code, USER_CODE, USER_DATA);
        self.out.load(s0, field(context_offset!(user_set)));
        self.out.set_gs_base(s0);
        self.load_native_flags(Register::R11);
        self.out.copy(s0, Register::RCX);
        self.leave_indirect();
    }

    /// CPL, CS and SS: flat segments, SS after CS in `syscall`'s case, before it in `sysret`'s.
    fn set_privilege(&mut self, cpl: u8, code: u64, code_kind: u64, data_kind: u64) {
        let [_, s1, _] = self.s();
        let stack = if cpl == 0 { code + 8 } else { code - 8 };
        self.out.set_field8(register_offset!(cpl), cpl);
        for (number, selector, kind) in [(1, code, code_kind), (2, stack & 0xffff, data_kind)] {
            self.out.set_field64(segment_offset(number), 0);
            self.out.constant(s1, 0xffff_ffff | selector << 32 | kind << 48);
            self.out.store(field(segment_offset(number) + 8), s1);
        }
    }
}

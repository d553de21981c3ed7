//! Sensitive instructions that a block does itself, on the context, instead of leaving.
//!
//! All of them keep the host's flags (invariant 2): masks are taken with `pext` and `pdep`, sums
//! with `lea`, tests with `jrcxz`. Where an instruction may have a consequence that needs a look at
//! the whole machine (interrupts become possible, TF, IOPL, AC change), the block tests for this
//! consequence first and, if it is possible, leaves the instruction to the interpreter.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use super::action::Inline;
use super::builder::{Builder, selector_offset, stack};
use super::emit::{at, field, gpr32};
use super::key::Mode;
use crate::context::{context_offset, register_offset};
use crate::instruction::{Class, class_of};

/// The inline translation of an instruction, if it has one in this mode. The class says what kind it is; the code,
/// which of a pair and with which operand size.
pub(super) fn inline(instruction: &Instruction, mode: Mode) -> Option<Inline> {
    if instruction.has_lock_prefix() {
        return None;
    }
    let kernel = mode.guest.is_kernel();
    let code = instruction.code();
    Some(match class_of(code) {
        Class::InterruptFlag if kernel && code == Code::Cli => Inline::DisableInterrupts,
        Class::InterruptFlag if kernel => Inline::EnableInterrupts,
        Class::AlignmentFlag if kernel && mode.smap => Inline::SetAccess(code == Code::Stac),
        Class::SwapGs if kernel => Inline::SwapGs,
        Class::PushFlags if code == Code::Pushfq => Inline::PushFlags,
        Class::PopFlags if kernel && code == Code::Popfq => Inline::PopFlags,
        Class::TimeStamp if kernel || !mode.time_stamp_disabled => {
            Inline::TimeStamp { with_processor: false }
        }
        Class::TimeStampAndProcessor if kernel || !mode.time_stamp_disabled => {
            Inline::TimeStamp { with_processor: true }
        }
        Class::StoreSegment if instruction.op0_kind() == OpKind::Register => {
            let number = crate::instruction::segment_register(instruction.op1_register()) as usize;
            let (register, offset) = (instruction.op0_register(), selector_offset(number));
            match register.size() {
                2 => Inline::ReadSelectorLow(register, offset),
                _ => Inline::ReadSelector(register.full_register(), offset),
            }
        }
        Class::MoveFromControl if kernel && code == Code::Mov_r64_cr => {
            let offset = match instruction.op1_register() {
                Register::CR0 => register_offset!(cr0),
                Register::CR2 => register_offset!(cr2),
                Register::CR3 => register_offset!(cr3),
                Register::CR4 => register_offset!(cr4),
                _ => return None,
            };
            Inline::ReadControl(instruction.op0_register(), offset)
        }
        Class::ReadSegmentBase if mode.segment_bases => {
            Inline::ReadBase(instruction.op0_register(), base_of(code))
        }
        Class::WriteSegmentBase if mode.segment_bases => {
            Inline::WriteBase(base_of(code), instruction.op0_register())
        }
        _ => return None,
    })
}

/// Where the base is that `rdfsbase` or one of its kin accesses (SDM 2B "RDFSBASE/RDGSBASE").
fn base_of(code: Code) -> i32 {
    let is_fs = matches!(code.mnemonic(), Mnemonic::Rdfsbase | Mnemonic::Wrfsbase);
    super::reach::segment_base(if is_fs { Register::FS } else { Register::GS })
}

const TEMPORARY: i32 = context_offset!(temporary);

impl Builder<'_> {
    /// Write the translation of a sensitive instruction.
    pub(super) fn inline(&mut self, kind: Inline, mark: u32) {
        let [s0, s1, _] = self.s();
        match kind {
            Inline::DisableInterrupts => {
                self.out.set_field8(register_offset!(interrupt_flag), 0);
            }
            Inline::EnableInterrupts => self.enable_interrupts(mark),
            Inline::SetAccess(allowed) => {
                self.out.set_field8(register_offset!(alignment_flag), u8::from(allowed));
                let offset =
                    if allowed { context_offset!(access_tlb) } else { context_offset!(kernel_tlb) };
                self.use_tlb(true, offset);
                self.user_open = allowed && self.key.mode.native;
            }
            Inline::SwapGs => {
                let base = super::reach::segment_base(Register::GS);
                self.out.load(s0, field(base));
                self.out.load(s1, field(register_offset!(kernel_gs_base)));
                self.out.store(field(base), s1);
                self.out.store(field(register_offset!(kernel_gs_base)), s0);
            }
            Inline::PushFlags => self.push_flags(mark),
            Inline::PopFlags => self.pop_flags(mark),
            Inline::TimeStamp { with_processor } => self.time_stamp(with_processor),
            Inline::ReadSelector(register, offset) => {
                self.out.load_word(register, field(offset));
            }
            Inline::ReadSelectorLow(register, offset) => {
                self.out.load_low_word(register, field(offset));
            }
            Inline::ReadControl(register, offset) => self.out.load(register, field(offset)),
            Inline::ReadBase(register, offset) if register.size() == 4 => {
                self.out.load32(register, field(offset));
            }
            Inline::ReadBase(register, offset) => self.out.load(register, field(offset)),
            Inline::WriteBase(offset, register) => self.write_base(offset, register, mark),
        }
    }

    /// A base must be canonical: the interpreter raises the exception for one that is not.
    fn write_base(&mut self, offset: i32, register: Register, mark: u32) {
        let [s0, s1, s2] = self.s();
        if register.size() == 4 {
            self.out.copy32(gpr32(s0), register);
            self.out.store(field(offset), s0);
            return;
        }
        self.out.copy(s2, Register::RCX);
        self.out.constant(s1, 64 - 48);
        self.out.shift_left(s0, register, s1);
        self.out.shift_right_arithmetic(s0, s0, s1);
        self.out.copy(s1, register);
        self.out.negate_into_sum(s0, s1);
        self.out.copy(Register::RCX, s0);
        self.interpret_unless_rcx_zero(mark);
        self.out.copy(Register::RCX, s2);
        self.out.store(field(offset), register);
    }

    /// Leave the instruction to the interpreter unless RCX, whose guest value is in s2, is zero.
    pub(super) fn interpret_unless_rcx_zero(&mut self, mark: u32) {
        let displacement = self.out.jump_unless_rcx_zero();
        self.delicate(displacement, mark);
    }

    fn enable_interrupts(&mut self, mark: u32) {
        let [_, _, s2] = self.s();
        self.out.copy(s2, Register::RCX);
        self.out.load_byte(Register::RCX, field(context_offset!(window_wanted)));
        self.interpret_unless_rcx_zero(mark);
        self.out.copy(Register::RCX, s2);
        self.out.set_field8(register_offset!(interrupt_flag), 1);
    }

    /// RFLAGS into s0: the host's status bits, the delicate bits, and IF and AC from their bytes. The
    /// host's bits are read on the context's own small stack.
    pub(super) fn compose_flags(&mut self) {
        let [s0, s1, _] = self.s();
        self.out.store(field(TEMPORARY), Register::RSP);
        self.out.load(Register::RSP, field(context_offset!(stack_top)));
        self.out.raw(&[0x9c]);
        self.out
            .instruction(&Instruction::with1(Code::Pop_r64, s0).expect("operands fit the code"));
        self.out.load(Register::RSP, field(TEMPORARY));
        self.masked(s0, context_offset!(native_mask));
        self.out.load(s1, field(context_offset!(regs) + crate::state::FLAGS_OFFSET));
        self.masked(s1, context_offset!(system_mask));
        self.out.lea(s0, at(s0, s1, 0));
        for (byte, mask) in [
            (register_offset!(interrupt_flag), context_offset!(interrupt_mask)),
            (register_offset!(alignment_flag), context_offset!(alignment_mask)),
        ] {
            self.out.load_byte(s1, field(byte));
            self.out.deposit(s1, s1, mask);
            self.out.lea(s0, at(s0, s1, 0));
        }
    }

    fn push_flags(&mut self, mark: u32) {
        let [s0, _, s2] = self.s();
        self.compose_flags();
        self.out.store(field(TEMPORARY), s0);
        let place = self.reach(stack(-8), 8, true, mark);
        self.out.load(s2, field(TEMPORARY));
        self.out.store(place, s2);
        self.adjust_stack(-8);
    }

    /// `register &= mask`, flags untouched.
    pub(super) fn masked(&mut self, register: Register, mask: i32) {
        self.out.extract(register, register, mask);
        self.out.deposit(register, register, mask);
    }

    fn pop_flags(&mut self, mark: u32) {
        let [s0, s1, s2] = self.s();
        let place = self.reach(stack(0), 8, false, mark);
        self.out.load(s0, place);
        self.out.copy(s2, Register::RCX);
        // Is anything delicate in the new value or the old one, or does the machine wait for IF?
        self.out.extract(Register::RCX, s0, context_offset!(delicate_mask));
        self.out.load(s1, field(context_offset!(regs) + crate::state::FLAGS_OFFSET));
        self.out.extract(s1, s1, context_offset!(delicate_mask));
        self.out.lea(Register::RCX, at(Register::RCX, s1, 0));
        for byte in [register_offset!(alignment_flag), context_offset!(window_wanted)] {
            self.out.load_byte(s1, field(byte));
            self.out.lea(Register::RCX, at(Register::RCX, s1, 0));
        }
        self.interpret_unless_rcx_zero(mark);
        self.out.copy(Register::RCX, s2);
        self.out.extract(s1, s0, context_offset!(interrupt_mask));
        self.out.store_byte(field(register_offset!(interrupt_flag)), s1);
        self.adjust_stack(8);
        self.load_native_flags(s0);
    }

    /// The host's flags from the bits of `from` that it carries; s1 is lost.
    pub(super) fn load_native_flags(&mut self, from: Register) {
        let [_, s1, _] = self.s();
        self.out.copy(s1, from);
        self.masked(s1, context_offset!(native_mask));
        self.out.store(field(TEMPORARY), Register::RSP);
        self.out.load(Register::RSP, field(context_offset!(stack_top)));
        self.out
            .instruction(&Instruction::with1(Code::Push_r64, s1).expect("operands fit the code"));
        self.out.raw(&[0x9d]);
        self.out.load(Register::RSP, field(TEMPORARY));
    }

    /// The host's time stamp plus the guest's offset, in EDX:EAX.
    fn time_stamp(&mut self, with_processor: bool) {
        let [s0, s1, _] = self.s();
        if with_processor {
            // `rdtscp` waits for earlier loads (SDM 2B "RDTSCP"): lfence; rdtsc.
            self.out.raw(&[0x0f, 0xae, 0xe8]);
        }
        self.out.raw(&[0x0f, 0x31]);
        self.out.rotate(s0, Register::RDX, 32);
        self.out.lea(s0, at(s0, Register::RAX, 0));
        self.out.load(s1, field(register_offset!(tsc_offset)));
        self.out.lea(s0, at(s0, s1, 0));
        self.out.copy32(Register::EAX, gpr32(s0));
        self.out.rotate(Register::RDX, s0, 32);
        self.out.copy32(Register::EDX, Register::EDX);
        if with_processor {
            self.out.load32(Register::ECX, field(register_offset!(tsc_aux)));
        }
    }
}

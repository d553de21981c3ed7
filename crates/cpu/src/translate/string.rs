//! `rep movs` and `rep stos` inside translated code.
//!
//! When the whole source and the whole destination each lie in one page that the TLB has, the
//! host's own `rep` does the work on host addresses; otherwise the interpreter takes it, a page at a
//! time (SDM 2B "REP": interruptible after every element, so any split is allowed). Translated code
//! never runs with the direction flag set: `may_translate` sees to it, and every instruction that
//! can set it leaves the block.

use iced_x86::{Code, Instruction, Register};

use super::emit::{at, field};
use super::generate::Builder;
use crate::context::context_offset;
use crate::memory::tlb::Entries;

/// A repeated string instruction with a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repeated {
    /// Bytes in an element.
    pub(crate) size: u32,
    /// `movs` rather than `stos`.
    pub(crate) copies: bool,
}

/// The translation of a string instruction, if it has one.
pub(crate) fn repeated(instruction: &Instruction) -> Option<Repeated> {
    let (size, copies) = match instruction.code() {
        Code::Movsb_m8_m8 => (1, true),
        Code::Movsw_m16_m16 => (2, true),
        Code::Movsd_m32_m32 => (4, true),
        Code::Movsq_m64_m64 => (8, true),
        Code::Stosb_m8_AL => (1, false),
        Code::Stosw_m16_AX => (2, false),
        Code::Stosd_m32_EAX => (4, false),
        Code::Stosq_m64_RAX => (8, false),
        _ => return None,
    };
    let wide = (0..instruction.op_count()).all(|operand| {
        !matches!(
            instruction.op_kind(operand),
            iced_x86::OpKind::MemoryESEDI
                | iced_x86::OpKind::MemorySegESI
                | iced_x86::OpKind::MemoryESDI
                | iced_x86::OpKind::MemorySegSI
        )
    });
    let repeats = instruction.has_rep_prefix() && !instruction.has_lock_prefix();
    let plain_segment = !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    (wide && repeats && plain_segment).then_some(Repeated { size, copies })
}

const DESTINATION: i32 = context_offset!(temporary);

impl Builder<'_> {
    /// Write the translation.
    pub(super) fn repeat(&mut self, repeated: Repeated, bytes: &[u8], mark: u32) {
        let [s0, s1, s2] = self.s();
        // Nothing to do and nothing to check when RCX is zero.
        let skip = self.out.jump_if_rcx_zero();
        self.look_up_run(Register::RDI, repeated.size, true, mark);
        self.out.lea(s1, at(s1, s0, 0));
        if repeated.copies {
            self.out.store(field(DESTINATION), s1);
            self.look_up_run(Register::RSI, repeated.size, false, mark);
            self.out.lea(s0, at(s1, s0, 0));
            self.out.load(s1, field(DESTINATION));
            self.out.copy(s2, Register::RSI);
            self.out.copy(Register::RSI, s0);
        }
        self.out.store(field(DESTINATION), Register::RDI);
        self.out.copy(Register::RDI, s1);
        self.out.raw(bytes);
        if repeated.copies {
            self.out.negate_into_sum(Register::RSI, s0);
            self.out.lea(Register::RSI, at(Register::RSI, s2, 0));
        }
        self.out.negate_into_sum(Register::RDI, s1);
        self.out.load(s1, field(DESTINATION));
        self.out.lea(Register::RDI, at(Register::RDI, s1, 0));
        let here = self.out.here();
        self.out.patch(skip, here);
    }

    /// Look up RCX elements at `pointer`, all of which must be in one page: s0 becomes the offset
    /// in the page, s1 the page's host address.
    fn look_up_run(&mut self, pointer: Register, size: u32, write: bool, mark: u32) {
        let [s0, s1, s2] = self.s();
        let tags = if write {
            std::mem::offset_of!(Entries, write)
        } else {
            std::mem::offset_of!(Entries, read)
        } as i32;
        self.out.copy(s0, pointer);
        self.out.extract(s1, s0, context_offset!(page_index_mask));
        self.out.copy(s2, Register::RCX);
        let tag = self.indexed(Register::RCX, s1, tags);
        self.out.load(Register::RCX, tag);
        self.out.lea(s0, at(s0, Register::RCX, 0));
        let host = self.indexed(Register::RCX, s1, std::mem::offset_of!(Entries, host) as i32);
        self.out.load(s1, host);
        // The last byte's page number, plus the part of the count that is beyond any page: zero
        // only if both are.
        let end = super::emit::scaled(s0, s2, size, -1);
        self.out.lea(Register::RCX, end);
        self.out.extract(Register::RCX, Register::RCX, context_offset!(page_number_mask));
        self.out.store(field(context_offset!(count)), s0);
        self.out.extract(s0, s2, context_offset!(count_mask));
        self.out.lea(Register::RCX, at(Register::RCX, s0, 0));
        self.out.load(s0, field(context_offset!(count)));
        self.miss_unless_rcx_zero(mark);
        self.out.copy(Register::RCX, s2);
    }
}

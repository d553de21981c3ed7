//! `cpuid` without leaving translated code: a table of what it has answered before.
//!
//! A dynamic linker asks CPUID some forty times before a program's first instruction, always the
//! same. Under a hypervisor each of these traps, which takes microseconds; here a question that was
//! asked before is answered in a few instructions, by a table in the context of its processor:
//!
//! ```text
//! mfence; lfence                      ; CPUID serializes (SDM 3A 9.3)
//! s0 = ECX << 32 | EAX                ; the question
//! s1 = the bits of s0 that choose the line
//! s0 &= line.significant
//! out, to be assisted, unless line.negative_question + s0 == 0
//! EAX, EBX, ECX, EDX = line
//! ```
//!
//! Most leaves have no subleaves, and are asked with anything in ECX: the answer is in all lines that it
//! may choose. What is not there is answered by Rust (assist.rs), which fills the line. An answer depends on the
//! processor, which never changes, and on CR4.OSXSAVE, XCR0 and whether there is a local APIC; code
//! that changes one of these empties the table ([`Architectural::clear_cpuid_cache`]).

use iced_x86::{MemoryOperand, Register};

use super::builder::{Builder, Later};
use super::emit::{at, gpr32};
use crate::architectural::Architectural;
use crate::context::context_offset;
use crate::cpuid_cache::{CpuidCache, Line};

impl Architectural {
    /// CPUID has been asked in a block, and has answered.
    pub(super) fn cache_cpuid(&mut self, leaf: u32, subleaf: u32) {
        let answer = [0, 3, 1, 2].map(|register| self.context.regs.gpr[register] as u32);
        self.context.cpuid_cache.insert(leaf, subleaf, answer);
    }
}

/// A part of the line whose offset is in a register.
fn part(register: Register, offset: usize) -> MemoryOperand {
    let lines = context_offset!(cpuid_cache) as usize + std::mem::offset_of!(CpuidCache, lines);
    let place = (lines + offset) as i64;
    MemoryOperand::new(register, Register::None, 1, place, 8, false, Register::FS)
}

/// One of the table's masks.
fn mask(offset: usize) -> i32 {
    context_offset!(cpuid_cache) + offset as i32
}

impl Builder<'_> {
    /// `cpuid`.
    pub(super) fn identify(&mut self, mark: u32) {
        let [s0, s1, s2] = self.s();
        self.out.raw(&[0x0f, 0xae, 0xf0, 0x0f, 0xae, 0xe8]);
        self.out.copy32(gpr32(s0), Register::ECX);
        self.out.rotate(s0, s0, 32);
        self.out.copy32(gpr32(s1), Register::EAX);
        self.out.lea(s0, at(s0, s1, 0));
        self.out.extract(s1, s0, mask(std::mem::offset_of!(CpuidCache, index_mask)));
        self.out.deposit(s1, s1, mask(std::mem::offset_of!(CpuidCache, line_mask)));
        self.out.copy(s2, Register::RCX);
        self.out.load(Register::RCX, part(s1, std::mem::offset_of!(Line, significant)));
        self.out.extract_by(s0, s0, Register::RCX);
        self.out.load(Register::RCX, part(s1, std::mem::offset_of!(Line, negative_question)));
        self.out.lea(Register::RCX, at(Register::RCX, s0, 0));
        let unknown = self.out.jump_unless_rcx_zero();
        self.postpone(Later::Assist { at: unknown, mark });
        let registers = [Register::EAX, Register::EBX, Register::ECX, Register::EDX];
        for (number, register) in registers.into_iter().enumerate() {
            let place = std::mem::offset_of!(Line, answer) + 4 * number;
            self.out.load32(register, part(s1, place));
        }
        self.count(context_offset!(answered), s1);
        self.goes_on(mark);
    }
}

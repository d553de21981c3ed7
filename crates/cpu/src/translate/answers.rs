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
//! processor, which never changes, and on CR4.OSXSAVE, XCR0 and whether there is a local APIC; whoever
//! changes one of these empties the table ([`Vcpu::forget_answers`]).

use iced_x86::{MemoryOperand, Register};

use super::emit::{at, gpr32};
use super::generate::{Builder, Later};
use crate::context::context_offset;
use crate::system::cpuid::has_subleaves;
use crate::vcpu::Vcpu;

/// Bits of a question that choose its line: those in which the leaves differ that are there, and
/// three for subleaves.
const INDEX_MASK: u64 = 0x8000_001f | (SUBLEAVES - 1) << 32;

/// Subleaves that can be kept of one leaf.
const SUBLEAVES: u64 = 8;

/// Lines of the table.
const LINES: usize = 1 << INDEX_MASK.count_ones();

/// A question and its answer.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Line {
    /// Minus (ECX << 32 | EAX), or what no question of this line can be.
    negative_question: u64,
    /// The bits of a question that count: low ones.
    significant: u64,
    /// EAX, EBX, ECX, EDX.
    answer: [u32; 4],
}

/// The table of one processor.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Answers {
    /// `pext` mask of a question that gives its line, and `pdep` mask that makes this an offset.
    index_mask: u64,
    line_mask: u64,
    lines: [Line; LINES],
}

/// Nothing: minus a question that belongs to another line.
fn none(index: usize) -> Line {
    let question: u64 = if index == 0 { 1 } else { 0 };
    Line { negative_question: question.wrapping_neg(), significant: !0, answer: [0; 4] }
}

fn question(leaf: u32, subleaf: u32) -> u64 {
    u64::from(subleaf) << 32 | u64::from(leaf)
}

/// The bits of `value` that `mask` has, moved together, as `pext` does it.
fn extracted(value: u64, mask: u64) -> usize {
    let bits = (0..64).filter(|bit| mask >> bit & 1 != 0).enumerate();
    bits.fold(0, |index, (to, from)| index | ((value >> from & 1) as usize) << to)
}

impl Answers {
    /// An empty table.
    pub(crate) fn new() -> Self {
        let line_mask = (LINES as u64 - 1) * size_of::<Line>() as u64;
        Self { index_mask: INDEX_MASK, line_mask, lines: std::array::from_fn(none) }
    }

    fn clear(&mut self) {
        self.lines = std::array::from_fn(none);
    }

    fn insert(&mut self, leaf: u32, subleaf: u32, answer: [u32; 4]) {
        let has_subleaves = has_subleaves(leaf);
        let significant = if has_subleaves { !0 } else { u64::from(u32::MAX) };
        let negative_question = (question(leaf, subleaf) & significant).wrapping_neg();
        let line = Line { negative_question, significant, answer };
        let copies = if has_subleaves { 1 } else { SUBLEAVES as u32 };
        for copy in 0..copies {
            let question = question(leaf, subleaf.wrapping_add(copy));
            self.lines[extracted(question, INDEX_MASK)] = line;
        }
    }
}

impl Vcpu {
    /// What CPUID answers may have changed.
    pub(crate) fn forget_answers(&mut self) {
        self.context.answers.clear();
    }

    /// CPUID has been asked in a block, and has answered.
    pub(super) fn remember_answer(&mut self, leaf: u32, subleaf: u32) {
        let answer = [0, 3, 1, 2].map(|register| self.context.regs.gpr[register] as u32);
        self.context.answers.insert(leaf, subleaf, answer);
    }
}

/// A part of the line whose offset is in a register.
fn part(register: Register, offset: usize) -> MemoryOperand {
    let lines = context_offset!(answers) as usize + std::mem::offset_of!(Answers, lines);
    let place = (lines + offset) as i64;
    MemoryOperand::new(register, Register::None, 1, place, 8, false, Register::FS)
}

/// One of the table's masks.
fn mask(offset: usize) -> i32 {
    context_offset!(answers) + offset as i32
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
        self.out.extract(s1, s0, mask(std::mem::offset_of!(Answers, index_mask)));
        self.out.deposit(s1, s1, mask(std::mem::offset_of!(Answers, line_mask)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_empty_answers_nothing() {
        for (index, line) in Answers::new().lines.iter().enumerate() {
            let question = line.negative_question.wrapping_neg();
            assert_ne!(extracted(question, INDEX_MASK), index);
        }
    }

    /// The line that translated code looks at, if it finds an answer there.
    fn found(answers: &Answers, leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
        let asked = question(leaf, subleaf);
        // SAFETY: translated code needs BMI2, without which there is no processor.
        let index = unsafe { std::arch::x86_64::_pext_u64(asked, answers.index_mask) };
        // SAFETY: as above.
        let offset = unsafe { std::arch::x86_64::_pdep_u64(index, answers.line_mask) } as usize;
        let line = answers.lines[offset / size_of::<Line>()];
        assert_eq!(offset % size_of::<Line>(), 0);
        // SAFETY: as above.
        let asked = unsafe { std::arch::x86_64::_pext_u64(asked, line.significant) };
        (line.negative_question.wrapping_add(asked) == 0).then_some(line.answer)
    }

    #[test]
    fn what_is_remembered_is_found_where_the_processor_looks() {
        let mut answers = Answers::new();
        for (leaf, subleaf) in [(0xd, 0), (7, 0xffff_fff9), (0x8000_001d, 3)] {
            assert_eq!(found(&answers, leaf, subleaf), None);
            answers.insert(leaf, subleaf, [1, 2, 3, leaf]);
            assert_eq!(found(&answers, leaf, subleaf), Some([1, 2, 3, leaf]));
            assert_eq!(found(&answers, leaf, subleaf ^ 1), None);
            assert_eq!(found(&answers, leaf, subleaf ^ 1 << 31), None);
            assert_eq!(found(&answers, leaf ^ 1 << 9, subleaf), None);
        }
    }

    #[test]
    fn a_leaf_without_subleaves_is_found_whatever_is_in_ecx() {
        let mut answers = Answers::new();
        for leaf in [0, 1, 0x8000_0000, 0x4000_0001, 0xffff_ffff] {
            answers.insert(leaf, 0x1234_5677, [leaf, 2, 3, 4]);
            for subleaf in [0, 1, 7, 0x0789_80fd, 0xffff_ffff] {
                assert_eq!(found(&answers, leaf, subleaf), Some([leaf, 2, 3, 4]));
            }
            assert_eq!(found(&answers, leaf ^ 1 << 20, 0), None);
        }
    }
}

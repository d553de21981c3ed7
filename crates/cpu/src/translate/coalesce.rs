//! Coalesced accesses: one TLB look-up for several accesses.
//!
//! Code works on stack frames and structures: within a block, most accesses go to a few places a few
//! bytes apart, through a base register that does not change meanwhile. The range from the first of these bytes to the
//! last is a *coalesced range*. The first access looks up the whole range and saves the host address of its start;
//! the other accesses use this address, at the cost of one load.
//!
//! ```text
//! push rbx            lea   s0, [rsp - 32] ; look up 40 bytes for writing
//!                     ...                  ; s0 = host address
//!                     mov   fs:[range], s0
//!                     mov   [s0 + 24], rbx
//! mov  [rsp+8], rax   mov   s0, fs:[range]
//!                     mov   [s0 + 16], rax
//! ```
//!
//! The rules:
//!
//! 1. A look-up has no effect that a guest could see, so it may cover bytes that no access reaches
//!    because control leaves the block before. It requires the strongest right that any access needs.
//! 2. If it misses (the range crosses a page, the rights differ within it, the TLB does not have it),
//!    the translated code goes on in a *plain* block, translated from the same
//!    instruction without coalescing, which looks up every access by itself and so fills the TLB.
//! 3. The saved host address is used only until control leaves the block, for Rust too, except for
//!    a miss that is served and resumed: no vCPU unmaps a page in between (vcpu_group.rs).
//! 4. The instruction after an `sti` is part of no range: it must not leave the block before it has
//!    completed.
//!
//! Kernel code that reaches memory through the mirror needs no look-up, and none is coalesced.

use iced_x86::{
    Code, Instruction, InstructionInfoFactory, MemoryOperand, OpAccess, OpKind, Register,
};
use rustc_hash::FxHashMap;

use super::action::{Action, Repeated};
use super::builder::Builder;
use super::emit::{at, field};
use super::planned::{CoalescedAccess, Lookup, Planned};
use crate::context::{MAX_COALESCED_RANGES, context_offset};
use crate::instruction::immediate_bit_form;

/// Bytes of one coalesced range.
const MAX_RANGE_BYTES: i64 = 512;

/// One access by base and displacement.
struct Reference {
    /// Base register and how often it had been changed.
    base: (Register, u32),
    /// Distance from the base register at the block's start or its last change.
    at: i64,
    size: usize,
    write: bool,
    /// How far the base register has moved since by known steps.
    moved: i64,
}

/// The state of base registers on the way through a block. They go by their 64-bit names, in 32-bit code as well.
struct Bases {
    /// Bytes of an address.
    word: i64,
    changes: FxHashMap<Register, u32>,
    stack_moved: i64,
}

impl Bases {
    fn reference(&self, base: Register, displacement: i64, size: usize, write: bool) -> Reference {
        let changes = self.changes.get(&base).copied().unwrap_or(0);
        let moved = if base == Register::RSP { self.stack_moved } else { 0 };
        Reference { base: (base, changes), at: displacement + moved, size, write, moved }
    }

    /// The access of an instruction, if it has one that a range can cover.
    fn reference_of(&self, planned: &Planned) -> Option<Reference> {
        let instruction = &planned.instruction;
        let stack = |displacement, write| {
            self.reference(Register::RSP, displacement, self.word as usize, write)
        };
        let below = -self.word;
        match planned.action {
            Action::Push(_) | Action::PushConstant(_) | Action::Call(_) => Some(stack(below, true)),
            Action::CallIndirect if instruction.op0_kind() == OpKind::Register => {
                Some(stack(below, true))
            }
            Action::Pop(_) | Action::Return(_) => Some(stack(0, false)),
            Action::Memory(usage) => {
                let base = instruction.memory_base();
                let simple = base.is_gpr()
                    && base.size() as i64 == self.word
                    && instruction.memory_index() == Register::None
                    && !matches!(instruction.memory_segment(), Register::FS | Register::GS)
                    && immediate_bit_form(instruction.code()).is_none();
                let displacement = instruction.memory_displacement64() as i64;
                let base = base.full_register();
                simple.then(|| self.reference(base, displacement, usage.size, usage.writes))
            }
            _ => None,
        }
    }

    /// Record which registers an instruction changes, and by how much it moves RSP.
    fn pass(&mut self, factory: &mut InstructionInfoFactory, planned: &Planned) {
        let instruction = &planned.instruction;
        let step = match planned.action {
            Action::Push(_) | Action::PushConstant(_) | Action::PushMemory => Some(-self.word),
            Action::Pop(register) if register != Register::RSP => Some(self.word),
            _ => self.stack_step(instruction),
        };
        for used in factory.info(instruction).used_registers() {
            let changes = !matches!(
                used.access(),
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            );
            let register = used.register().full_register();
            if changes && register.is_gpr() && !(step.is_some() && register == Register::RSP) {
                *self.changes.entry(register).or_insert(0) += 1;
            }
        }
        if let Action::Repeat(Repeated { .. }) = planned.action {
            for register in [Register::RDI, Register::RSI, Register::RCX] {
                *self.changes.entry(register).or_insert(0) += 1;
            }
        }
        self.stack_moved += step.unwrap_or(0);
    }

    /// By how much an instruction moves RSP, if it does so by a constant and does nothing else to it.
    fn stack_step(&self, instruction: &Instruction) -> Option<i64> {
        use Code::{Add_rm32_imm8, Add_rm32_imm32, Add_rm64_imm8, Add_rm64_imm32};
        use Code::{Lea_r32_m, Lea_r64_m};
        use Code::{Sub_rm32_imm8, Sub_rm32_imm32, Sub_rm64_imm8, Sub_rm64_imm32};
        let stack = if self.word == 8 { Register::RSP } else { Register::ESP };
        if instruction.op_count() < 2 || instruction.op0_register() != stack {
            return None;
        }
        // All are signed, and have at most 32 bits.
        let constant = || i64::from(instruction.immediate(1) as i32);
        match instruction.code() {
            Add_rm64_imm8 | Add_rm64_imm32 | Add_rm32_imm8 | Add_rm32_imm32 => Some(constant()),
            Sub_rm64_imm8 | Sub_rm64_imm32 | Sub_rm32_imm8 | Sub_rm32_imm32 => Some(-constant()),
            Lea_r64_m | Lea_r32_m
                if instruction.memory_base() == stack
                    && instruction.memory_index() == Register::None =>
            {
                Some(instruction.memory_displacement64() as i64)
            }
            _ => None,
        }
    }
}

/// A coalesced range under construction.
struct CoalescedRange {
    low: i64,
    high: i64,
    write: bool,
    /// How far the base register had moved at the first access, which looks the range up.
    moved: i64,
    accesses: Vec<(usize, Reference)>,
}

impl CoalescedRange {
    /// A range that starts with this access, which [`Self::take`] adds.
    fn starting_with(first: &Reference) -> Self {
        let (low, moved) = (first.at, first.moved);
        Self { low, high: low, write: false, moved, accesses: Vec::new() }
    }

    fn range_with(&self, reference: &Reference) -> (i64, i64) {
        let high = reference.at + reference.size as i64;
        (self.low.min(reference.at), self.high.max(high))
    }

    /// Whether the first access can still look the range up if it includes this one.
    fn can_take(&self, reference: &Reference) -> bool {
        let (low, high) = self.range_with(reference);
        high - low <= MAX_RANGE_BYTES && self.displacement_of(low).is_some()
    }

    fn take(&mut self, index: usize, reference: Reference) {
        (self.low, self.high) = self.range_with(&reference);
        self.write |= reference.write;
        self.accesses.push((index, reference));
    }

    /// The displacement by which the first access names `at`, if 32 bits have it. They may not: the
    /// base moves between the accesses, each of which has 32 bits from where the base is then.
    fn displacement_of(&self, at: i64) -> Option<i32> {
        i32::try_from(at - self.moved).ok()
    }

    /// What the first access looks up.
    fn look_up(&self) -> Option<Lookup> {
        let (_, first) = self.accesses.first()?;
        Some(Lookup {
            base: first.base.0,
            displacement: self.displacement_of(self.low)?,
            size: usize::try_from(self.high - self.low).ok()?,
            write: self.write,
        })
    }
}

/// Find the coalesced ranges of a run of code whose addresses have so many bytes, and mark its instructions.
pub(super) fn find(factory: &mut InstructionInfoFactory, run: &mut [Planned], word: u32) {
    let mut bases = Bases { word: i64::from(word), changes: FxHashMap::default(), stack_moved: 0 };
    let mut open: FxHashMap<(Register, u32), usize> = FxHashMap::default();
    let mut ranges: Vec<CoalescedRange> = Vec::new();
    for (index, planned) in run.iter().enumerate() {
        let reference = bases.reference_of(planned).filter(|_| !planned.sheltered);
        if let Some(reference) = reference {
            let known = open.get(&reference.base).copied();
            let number = known.filter(|&number| ranges[number].can_take(&reference));
            let number = number.unwrap_or_else(|| {
                ranges.push(CoalescedRange::starting_with(&reference));
                ranges.len() - 1
            });
            open.insert(reference.base, number);
            ranges[number].take(index, reference);
        }
        bases.pass(factory, planned);
    }
    let worth_it = ranges.into_iter().filter(|range| range.accesses.len() > 1);
    let with_look_up = worth_it.filter_map(|range| Some((range.look_up()?, range)));
    for (slot, (look_up, range)) in with_look_up.take(MAX_COALESCED_RANGES).enumerate() {
        for (place, (index, reference)) in range.accesses.iter().enumerate() {
            let first = (place == 0).then_some(look_up);
            let offset = (reference.at - range.low) as i32;
            run[*index].coalesced = Some(CoalescedAccess { slot, offset, first });
        }
    }
}

impl Builder<'_> {
    /// The operand of an access that is part of a coalesced range.
    pub(super) fn coalesced_operand(
        &mut self,
        access: CoalescedAccess,
        mark: u32,
    ) -> MemoryOperand {
        let [s0, s1, _] = self.s();
        let kept = field(context_offset!(coalesced) + 8 * access.slot as i32);
        if let Some(Lookup { base, displacement, size, write }) = access.first {
            self.look_up(self.beside(base, displacement), size, write, mark);
            self.out.lea(s0, at(s1, s0, 0));
            self.out.store(kept, s0);
        } else {
            self.out.load(s0, kept);
        }
        at(s0, Register::None, access.offset)
    }

    /// An instruction with an explicit memory operand that is part of a coalesced range; false if the operand
    /// cannot be replaced.
    pub(super) fn coalesced_instruction(
        &mut self,
        instruction: &Instruction,
        access: CoalescedAccess,
        mark: u32,
    ) -> bool {
        let [s0, ..] = self.s();
        let (mut moved, high) = self.without_high_byte(instruction);
        moved.set_segment_prefix(Register::None);
        moved.set_memory_base(s0);
        moved.set_memory_index(Register::None);
        moved.set_memory_index_scale(1);
        moved.set_memory_displacement64(i64::from(access.offset) as u64);
        moved.set_memory_displ_size(u32::from(access.offset != 0));
        let mut probe = iced_x86::Encoder::new(64);
        if probe.encode(&moved, self.out.here().0).is_err() {
            return false;
        }
        self.coalesced_operand(access, mark);
        self.load_high_byte(high);
        self.out.instruction(&moved);
        true
    }
}

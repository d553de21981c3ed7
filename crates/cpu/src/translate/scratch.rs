//! Scratch registers: what a block computes with besides the guest's own.
//!
//! A block has three, whose guest values are *spilled* to slots of the context from its entry to its exits.
//! It can only have those that its guest instructions do not name, so neighbours may have others. Spilling
//! and reloading all three at each change would be a sixth of a kernel's translated instructions. Hence:
//!
//! 1. Nearly all blocks have scratch registers, needed or not, and between blocks they stay spilled.
//! 2. The *canonical* ones are those that compilers use least: temporaries of the calling convention that carry
//!    no argument, or the last. They are free in 95% of Linux's blocks and in 85 to 90% of a library's; R13 to
//!    R15, which keep their values over calls, in 77 and in 73 to 78%. A block has these, except for those that
//!    its instructions name: each is replaced in its slot, and the others keep theirs.
//! 3. A block that is first reached from one of the same page that needs others takes these over where it can, and so
//!    do its successors, up to [`MAX_INHERITED`] of them. Else a loop that is made of a block that needs others and one
//!    that does not would convert twice in each round, and carry the guest's values from one to the next by memory.
//! 4. Blocks with the same ones are linked directly. All others hand over in the canonical state. The block
//!    that is left reloads its scratch registers that are not canonical and spills the canonical ones,
//!    which is one register as a rule; the block that is entered does the contrary ([`convert`]).

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::action::Action;
use super::emit::{Emitter, field, gpr64};
use super::planned::Run;
use crate::context::context_offset;

/// A block's scratch registers, by slot.
pub(super) type Scratch = [Register; 3];

/// Those of a block that can choose freely.
pub(super) const CANONICAL: Scratch = [Register::R11, Register::R10, Register::R9];

/// What replaces them, in order of preference: those that compilers use least come first.
const OTHERS: [usize; 11] = [8, 15, 14, 13, 12, 5, 6, 2, 3, 7, 0];

const SPILL: i32 = context_offset!(spill);

fn slot(number: usize) -> MemoryOperand {
    field(SPILL + 8 * number as i32)
}

/// How far from a block that needs others than the canonical ones its successors take them over.
const MAX_INHERITED: u8 = 3;

/// The scratch registers of a block, and from how far they come: 0 if they are its own choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) scratch: Option<Scratch>,
    pub(super) inherited: u8,
}

/// Three registers that the run does not use, if it needs any: those of the block `before` it, if there is one that
/// they are to be taken over from.
pub(super) fn choose(run: &Run, before: Option<Chosen>) -> Chosen {
    if let Some(Action::Interpret) = run.instructions.first().map(|first| first.action) {
        return Chosen { scratch: None, inherited: 0 };
    }
    let is_free = |number: usize| run.registers >> number & 1 == 0;
    if let Some(Chosen { scratch: Some(scratch), inherited }) = before
        && inherited < MAX_INHERITED
        && scratch != CANONICAL
        && scratch.into_iter().all(|register| is_free(register.number()))
    {
        return Chosen { scratch: Some(scratch), inherited: inherited + 1 };
    }
    let mut others = OTHERS.into_iter().filter(|&number| is_free(number));
    let chosen = CANONICAL.map(|register| {
        if is_free(register.number()) {
            return register;
        }
        gpr64(others.next().expect("a run leaves three registers free"))
    });
    Chosen { scratch: Some(chosen), inherited: 0 }
}

/// Spill them all.
pub(super) fn spill(out: &mut Emitter, scratch: Scratch) {
    for (number, register) in scratch.into_iter().enumerate() {
        out.store(slot(number), register);
    }
}

/// Give them all their guest values back.
pub(super) fn reload(out: &mut Emitter, scratch: Scratch) {
    for (number, register) in scratch.into_iter().enumerate() {
        out.load(register, slot(number));
    }
}

/// From one block's being spilled to another's.
pub(super) fn convert(out: &mut Emitter, from: Scratch, to: Scratch) {
    let differ = |number: &usize| from[*number] != to[*number];
    // One of the new may be one of the old, in another slot.
    for number in (0..3).filter(differ) {
        out.load(from[number], slot(number));
    }
    for number in (0..3).filter(differ) {
        out.store(slot(number), to[number]);
    }
}

/// Go from a block with these scratch registers to the canonical entry that `target` holds, which may be
/// reached through `through`, one of them.
pub(super) fn make_canonical(
    out: &mut Emitter,
    scratch: Scratch,
    through: Register,
    target: MemoryOperand,
) {
    let mut place = target;
    if scratch != CANONICAL {
        place = field(context_offset!(jump_target));
        out.load(through, target);
        out.store(place, through);
        convert(out, scratch, CANONICAL);
    }
    let jump = Instruction::with1(Code::Jmp_rm64, place);
    out.instruction(&jump.expect("operands fit the code"));
}

//! A run of guest instructions with the translation that is planned for each.

use iced_x86::{Instruction, Register};

use super::action::Action;
use crate::memory::Physical;

/// One instruction of a run.
pub(super) struct Planned {
    /// As the guest has it.
    pub(super) guest: Instruction,
    /// As 64-bit code has it (code_32.rs).
    pub(super) instruction: Instruction,
    pub(super) action: Action,
    /// Distance from the run's start, in bytes.
    pub(super) delta: u16,
    /// Memory is accessed through the mirror (memory/mirror.rs).
    pub(super) native: bool,
    /// The access is part of a coalesced range (coalesce.rs).
    pub(super) coalesced: Option<CoalescedAccess>,
    /// It has a second way for an operand that crosses a page (crossing.rs).
    pub(super) crosses: bool,
    /// It comes after an `sti`, which keeps interrupts off until it has completed.
    pub(super) sheltered: bool,
}

/// An access that is part of a coalesced range (coalesce.rs).
#[derive(Debug, Clone, Copy)]
pub(super) struct CoalescedAccess {
    /// Where the host address is kept.
    pub(super) slot: usize,
    /// Distance of the access from the start of the range.
    pub(super) offset: i32,
    /// For the first access, what is looked up.
    pub(super) first: Option<Lookup>,
}

/// The look-up of a coalesced range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup {
    pub(super) base: Register,
    /// Distance of the range's start from the base register at the first access.
    pub(super) displacement: i32,
    pub(super) size: usize,
    pub(super) write: bool,
}

/// Guest code to be translated as one block.
pub(super) struct Run {
    pub(super) instructions: Vec<Planned>,
    /// The guest's bytes.
    pub(super) bytes: Vec<u8>,
    /// The second page, when the run is one instruction that straddles two.
    pub(super) second: Option<Physical>,
    /// General-purpose registers in use, by number.
    pub(super) registers: u16,
    /// Whether x87 or vector state is in use.
    pub(super) vectors: bool,
    /// All of it is for the interpreter ([`Run::interpret_all`]); its length in bytes.
    pub(super) interpreted: Option<u16>,
}

impl Run {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let instructions = Vec::new();
        Self { instructions, bytes, second: None, registers: 0, vectors: false, interpreted: None }
    }

    /// Length of the guest code in bytes.
    pub(super) fn length(&self) -> u16 {
        let end = |last: &Planned| last.delta + last.instruction.len() as u16;
        self.interpreted.unwrap_or_else(|| self.instructions.last().map_or(0, end))
    }

    /// Leave all of it to the interpreter, which is called at its start (run.rs).
    pub(super) fn interpret_all(&mut self) {
        self.interpreted = Some(self.length());
        self.vectors = false;
        self.instructions.truncate(1);
        for first in &mut self.instructions {
            first.action = Action::Interpret;
            first.coalesced = None;
        }
    }

    /// Plant an error of translation: leave an instruction out.
    pub(super) fn spoil(&mut self) {
        let copied = |planned: &&mut Planned| matches!(planned.action, Action::Copy);
        if let Some(planned) = self.instructions.iter_mut().find(copied) {
            planned.action = Action::Skip;
        }
    }
}

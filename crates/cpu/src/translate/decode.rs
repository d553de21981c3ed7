//! Reading a run of guest instructions that will become one block.
//!
//! A run stays in one page. It goes on over conditional jumps that are not taken, and ends with
//! any other change of control, with an instruction for the interpreter, at a bound, or where
//! three registers would no longer be free for look-ups.

use iced_x86::{Decoder, DecoderError, DecoderOptions, Instruction};

use super::Key;
use super::inline::Inline;
use super::plan::{self, Action};
use crate::exception::Trap;
use crate::memory::{Linear, PAGE_SIZE, Physical};
use crate::vcpu::Vcpu;

/// Guest instructions in one block.
const MAX_INSTRUCTIONS: usize = 64;

/// Conditional jumps in one block.
const MAX_BRANCHES: usize = 8;

/// Registers that may be in use besides RSP and RCX, so that three are free.
const MAX_REGISTERS: u32 = 11;

/// One instruction of a run.
pub(super) struct Planned {
    pub(super) instruction: Instruction,
    pub(super) action: Action,
    /// Distance from the run's start, in bytes.
    pub(super) delta: u16,
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
}

impl Run {
    /// Length of the guest code in bytes.
    pub(super) fn length(&self) -> u16 {
        self.instructions.last().map_or(0, |last| last.delta + last.instruction.len() as u16)
    }
}

/// RSP and RCX have fixed roles and do not count.
const FIXED: u16 = 1 << 4 | 1 << 1;

impl Vcpu {
    /// The run at `key`.
    ///
    /// # Errors
    ///
    /// The fault of fetching the second page of an instruction that straddles two.
    pub(super) fn decode_run(&mut self, key: Key) -> Result<Run, Trap> {
        let offset = (key.physical & (PAGE_SIZE - 1)) as usize;
        let mut bytes = vec![0; PAGE_SIZE as usize - offset];
        if let Some(host) = self.ram.host(Physical(key.physical)) {
            // SAFETY: RAM up to the end of the page; the copy is what will be translated, whatever
            // becomes of the original.
            unsafe {
                std::ptr::copy_nonoverlapping(host, bytes.as_mut_ptr(), bytes.len());
            }
        }
        let run = self.decode_in_page(key, bytes);
        if run.instructions.is_empty() { self.decode_straddling(key) } else { Ok(run) }
    }

    fn decode_in_page(&mut self, key: Key, bytes: Vec<u8>) -> Run {
        let mut run = Run { instructions: Vec::new(), bytes, second: None, registers: 0 };
        let mut branches = 0;
        let source = std::mem::take(&mut run.bytes);
        let mut decoder = Decoder::with_ip(64, &source, key.linear, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while run.instructions.len() < MAX_INSTRUCTIONS && decoder.can_decode() {
            let delta = decoder.position() as u16;
            decoder.decode_out(&mut instruction);
            if decoder.last_error() == DecoderError::NoMoreBytes {
                break;
            }
            let action = if instruction.is_invalid() {
                Action::Interpret
            } else {
                plan::plan(&mut self.info_factory, &instruction, key.mode)
            };
            let used = plan::registers_used(&mut self.info_factory, &instruction);
            let registers = run.registers | used;
            if (registers & !FIXED).count_ones() > MAX_REGISTERS && !run.instructions.is_empty() {
                break;
            }
            run.registers = registers;
            run.instructions.push(Planned { instruction, action, delta });
            branches += usize::from(matches!(action, Action::Branch(..)));
            if action.ends_block() || branches == MAX_BRANCHES {
                break;
            }
        }
        run.bytes = source;
        // `sti` holds interrupts off for one more instruction, which must be in the same block.
        if let Some(last) = run.instructions.last_mut()
            && matches!(last.action, Action::Inline(Inline::EnableInterrupts))
        {
            last.action = Action::Interpret;
        }
        run
    }

    fn decode_straddling(&mut self, key: Key) -> Result<Run, Trap> {
        let mut bytes = [0; 15];
        let available = self.fetch(&mut bytes)?;
        let next = Linear(Linear(key.linear).page().0.wrapping_add(PAGE_SIZE));
        let mut run =
            Run { instructions: Vec::new(), bytes: bytes.to_vec(), second: None, registers: 0 };
        let mut decoder =
            Decoder::with_ip(64, &bytes[..available], key.linear, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let mut action = Action::Interpret;
        if decoder.last_error() == DecoderError::None {
            run.second = Some(self.walk_for_fetch(next)?.physical);
            action = plan::plan(&mut self.info_factory, &instruction, key.mode);
            if matches!(action, Action::Inline(_)) {
                action = Action::Interpret;
            }
            run.registers = plan::registers_used(&mut self.info_factory, &instruction);
        }
        run.instructions.push(Planned { instruction, action, delta: 0 });
        Ok(run)
    }
}

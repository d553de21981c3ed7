//! Decoding a run of guest instructions, which will become one block.
//!
//! A run stays in one page. It goes on over conditional jumps that are not taken, and ends with
//! any other change of control, with an instruction for the interpreter, at a bound, or where
//! three registers would no longer be free for look-ups.

use iced_x86::{Decoder, DecoderError, Instruction, OpKind, Register};
use rustc_hash::FxHashSet;

use super::Translator;
use super::action::{Action, Inline};
use super::coalesce;
use super::code_32;
use super::crossing::Crossing;
use super::key::Key;
use super::plan;
use super::planned::{Planned, Run};
use crate::exception::Trap;
use crate::instruction::touches_vectors;
use crate::memory::{Linear, PAGE_SIZE, Physical};
use crate::system::cpuid::decoder_options;
use crate::techniques::{Technique, Techniques};
use crate::vcpu::Vcpu;

/// Guest instructions in one block.
const MAX_INSTRUCTIONS: usize = 64;

/// Conditional jumps in one block.
const MAX_BRANCHES: usize = 8;

/// Registers that may be in use besides RSP and RCX, so that three are free.
const MAX_REGISTERS: u32 = 11;

/// Which instructions of a run access memory through the mirror: those of the kernel, except where
/// it has opened user memory, and those that have been found to reach something else.
struct Mirrored {
    on: bool,
    user_access: bool,
    exceptions: FxHashSet<Physical>,
}

impl Mirrored {
    fn new(key: Key, translator: &Translator) -> Self {
        let on = key.mode.native && key.mode.guest.is_kernel() && key.is_64_bit();
        let exceptions =
            if on { translator.exceptions_in(key.physical) } else { FxHashSet::default() };
        Self { on, user_access: key.mode.user_open, exceptions }
    }

    fn next(&mut self, planned: &Planned, physical: Physical) -> bool {
        if let Action::Inline(Inline::SetAccess(open)) = planned.action {
            self.user_access = open;
        }
        self.on
            && (!self.user_access || is_kernels_own(planned))
            && !self.exceptions.contains(&physical)
    }
}

/// Whether an instruction accesses only what is the kernel's at all times: its stack, its variables,
/// and those of the processor.
fn is_kernels_own(planned: &Planned) -> bool {
    let instruction = &planned.instruction;
    match planned.action {
        Action::Push(_) | Action::PushConstant(_) | Action::Pop(_) => true,
        Action::Call(_) | Action::Return(_) => true,
        Action::InterruptReturn | Action::ReturnInKernel => true,
        Action::CallIndirect if instruction.op0_kind() == OpKind::Register => true,
        // A string instruction sees for itself whose memory it is (string.rs).
        Action::Repeat(_) => true,
        Action::Memory(_) => {
            let named = matches!(instruction.memory_base(), Register::None | Register::RIP);
            let on_stack = instruction.memory_base() == Register::RSP;
            (named || on_stack) && instruction.memory_index() == Register::None
        }
        _ => false,
    }
}

/// Whether an instruction is an `sti` that the block does itself.
fn enables_interrupts(planned: &Planned) -> bool {
    matches!(planned.action, Action::Inline(Inline::EnableInterrupts))
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
        let offset = key.physical.offset() as usize;
        let mut bytes = vec![0; PAGE_SIZE as usize - offset];
        if let Some(host) = self.arch.ram.host(key.physical) {
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
        let mut run = Run::new(bytes);
        let mut branches = 0;
        let techniques = self.techniques_of_blocks();
        let (mut mirrored, crossing) = {
            let translator = self.arch.group.translator();
            (Mirrored::new(key, &translator), Crossing::new(key, &translator, &self.arch.group))
        };
        let source = std::mem::take(&mut run.bytes);
        let bits = key.mode.guest.bits();
        let mut decoder = Decoder::with_ip(bits, &source, key.linear.0, decoder_options());
        let mut guest = Instruction::default();
        while run.instructions.len() < MAX_INSTRUCTIONS && decoder.can_decode() {
            let delta = decoder.position() as u16;
            // A debugger may stop before it (stops.rs).
            if delta > 0 && self.arch.debugging.is_suspect(key.linear.plus(u64::from(delta)).0) {
                break;
            }
            decoder.decode_out(&mut guest);
            if decoder.last_error() == DecoderError::NoMoreBytes {
                break;
            }
            let (instruction, action) = self.plan(&guest, key, techniques);
            let used = plan::registers_used(&mut self.arch.info_factory, &guest)
                | action.registers_named();
            let registers = run.registers | used;
            if (registers & !FIXED).count_ones() > MAX_REGISTERS && !run.instructions.is_empty() {
                break;
            }
            run.registers = registers;
            let sheltered = run.instructions.last().is_some_and(enables_interrupts);
            let (native, coalesced) = (false, None);
            let physical = key.physical.plus(u64::from(delta));
            let crosses = crossing.includes(&instruction, action, physical);
            let mut planned = Planned {
                guest,
                instruction,
                action,
                delta,
                native,
                coalesced,
                crosses,
                sheltered,
            };
            planned.native = mirrored.next(&planned, physical);
            let extended = matches!(action, Action::ExtendedState) && planned.native;
            run.vectors |= extended || action.is_copied() && touches_vectors(&instruction);
            run.instructions.push(planned);
            branches += usize::from(matches!(action, Action::Branch(..)));
            if action.ends_block() || branches == MAX_BRANCHES {
                break;
            }
        }
        run.bytes = source;
        if !mirrored.on && !key.plain && techniques.has(Technique::Coalescing) {
            coalesce::find(&mut self.arch.info_factory, &mut run.instructions, bits / 8);
        }
        // `sti` holds interrupts off for one more instruction, which must be in the same block.
        if let Some(last) = run.instructions.last_mut()
            && enables_interrupts(last)
        {
            last.action = Action::Interpret;
        }
        run
    }

    /// An instruction as 64-bit code has it, and what becomes of it.
    fn plan(
        &mut self,
        guest: &Instruction,
        key: Key,
        techniques: Techniques,
    ) -> (Instruction, Action) {
        let lifted = match key.is_64_bit() {
            true => Some(*guest),
            false => code_32::lift(guest, key.is_relocatable()),
        };
        match lifted.filter(|_| !guest.is_invalid()) {
            None => (*guest, Action::Interpret),
            Some(instruction) => {
                let action = plan::plan(&mut self.arch.info_factory, &instruction, key.mode);
                (instruction, action.by(techniques))
            }
        }
    }

    /// The techniques that blocks are made by. A tracer sees each instruction that the host's processor does not
    /// simply execute.
    fn techniques_of_blocks(&self) -> Techniques {
        let techniques = self.arch.group.techniques;
        if !self.is_traced() {
            return techniques;
        }
        techniques.without(Technique::Assists).without(Technique::ExtendedState)
    }

    fn decode_straddling(&mut self, key: Key) -> Result<Run, Trap> {
        let mut bytes = [0; 15];
        let available = self.arch.fetch(&mut bytes)?;
        let next = Linear(self.arch.context.regs.rip).page().plus(PAGE_SIZE);
        let mut run = Run::new(bytes.to_vec());
        let bits = key.mode.guest.bits();
        let mut decoder =
            Decoder::with_ip(bits, &bytes[..available], key.linear.0, decoder_options());
        let guest = decoder.decode();
        let (mut instruction, mut action) = (guest, Action::Interpret);
        // The second page of 32-bit code at the end of its 4 GiB is not the next one.
        let is_next = key.mode.guest.linear(next) == next;
        if decoder.last_error() == DecoderError::None && is_next {
            run.second = Some(self.walk_for_fetch(next)?.physical);
            (instruction, action) = self.plan(&guest, key, self.arch.group.techniques);
            if matches!(action, Action::Inline(_) | Action::Assist(_) | Action::ExtendedState) {
                action = Action::Interpret;
            }
            run.registers = plan::registers_used(&mut self.arch.info_factory, &guest)
                | action.registers_named();
        }
        run.vectors = action.is_copied() && touches_vectors(&instruction);
        run.instructions.push(Planned {
            guest,
            instruction,
            action,
            delta: 0,
            native: false,
            coalesced: None,
            crosses: false,
            sheltered: false,
        });
        Ok(run)
    }
}

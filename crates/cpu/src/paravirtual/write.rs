//! Writes by the kernel to pages that are mapped read-only, perhaps because they are its own page tables (Xen:
//! "writable page tables").
//!
//! The processor does not know which frames are page tables. So an instruction that writes one to eight bytes of an
//! aligned word on such a page is executed on a copy of the word, and retires, but the word is not stored: the exit
//! [`Exit::ParavirtualWrite`] says what was found and what is to be there. Until the vCPU runs again, the
//! hypervisor has either stored the word, by a compare-and-exchange with what was found; or it has the instruction
//! fault ([`Vcpu::refuse_paravirtual_write`]), or start over because the word had changed
//! ([`Vcpu::retry_paravirtual_write`]). In both cases the registers from before the instruction are put back:
//! nobody has seen that it had retired.
//!
//! Only plain operands are taken. A string instruction, a push, or an operand of more than a word is the page fault
//! that it would be anyway: no kernel writes its page tables with these while they are in use.

use iced_x86::Instruction;

use crate::architectural::Architectural;
use crate::context::context_offset;
use crate::exception::{Exception, Trap, Vector};
use crate::exit::Exit;
use crate::instruction::{MemoryUse, on_context};
use crate::memory::{Access, Linear, Place, Privilege};
use crate::vcpu::Vcpu;

/// Error code of a write to a page that is present, in supervisor mode (SDM 3A 4.7).
const PROTECTED: u32 = 0b11;

/// Bytes that the hypervisor looks at.
const WORD: u64 = 8;

impl Architectural {
    /// Whether a fault of a write may be one that the hypervisor carries out.
    pub(crate) fn may_be_table(&self, fault: Exception) -> bool {
        self.paravirtual.is_some()
            && self.context.regs.cpl == 0
            && fault.vector == Vector::PageFault
            && fault.error == Some(PROTECTED)
    }

    /// Execute an instruction that writes to what may be a table. Whether it was one.
    ///
    /// # Errors
    ///
    /// The instruction's exceptions.
    pub(crate) fn write_table(
        &mut self,
        instruction: &Instruction,
        linear: Linear,
        operand: MemoryUse,
    ) -> Result<bool, Trap> {
        let offset = linear.0 % WORD;
        if self.paravirtual.is_none() || !operand.writes || offset + operand.size as u64 > WORD {
            return Ok(false);
        }
        let written = self.translate_linear(linear, Access::Write, Privilege::Current);
        let Err(fault) = written else { return Ok(false) };
        if !self.may_be_table(fault) {
            return Ok(false);
        }
        let found = self.translate_linear(linear, Access::Read, Privilege::Current)?;
        let Place::Ram(_, physical) = found else { return Ok(false) };
        let address = physical.0 & !(WORD - 1);
        let old = crate::memory::paging::load(&self.ram, address, WORD);
        let (start, end) = (offset as usize, offset as usize + operand.size);
        let mut before = self.context.regs;
        before.rip = instruction.ip();
        self.context.bounce.0[..operand.size].copy_from_slice(&old.to_le_bytes()[start..end]);
        self.call_out(&on_context(instruction, context_offset!(bounce)))?;
        let mut new = old.to_le_bytes();
        new[start..end].copy_from_slice(&self.context.bounce.0[..operand.size]);
        if let Some(state) = &mut self.paravirtual {
            state.before = Some(Box::new((before, fault)));
        }
        self.replay.queue(Exit::ParavirtualWrite { address, old, new: u64::from_le_bytes(new) });
        Ok(true)
    }
}

impl Vcpu {
    /// The write that the vCPU has stopped at is a page fault.
    pub fn refuse_paravirtual_write(&mut self) {
        if let Some(fault) = self.undo_write() {
            // What cannot be delivered shuts the processor down, which the next run says.
            let _ = self.raise(fault);
        }
    }

    /// The instruction whose write the vCPU has stopped at is to start over.
    pub fn retry_paravirtual_write(&mut self) {
        self.undo_write();
    }

    fn undo_write(&mut self) -> Option<Exception> {
        let (registers, fault) = *self.arch.paravirtual.as_mut()?.before.take()?;
        self.arch.context.regs = registers;
        Some(fault)
    }
}

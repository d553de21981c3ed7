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
//!
//! Nearly all of these instructions are a `mov`, an `xchg` or a `cmpxchg` that finds what it expects: a kernel that
//! unmaps a file executes one for each page. When a block has missed at one, it is carried out without the
//! interpreter ([`Architectural::write_table_of_block`]), since there is nothing to compute.

use iced_x86::{Code, Instruction, OpKind, Register};

use crate::architectural::Architectural;
use crate::context::context_offset;
use crate::exception::{Exception, Trap, Vector};
use crate::exit::Exit;
use crate::instruction::{MemoryUse, on_context};
use crate::memory::{Access, Linear, Physical, Place, Privilege};
use crate::state::{Registers, rflags};
use crate::vcpu::Vcpu;

/// Error code of a write to a page that is present, in supervisor mode (SDM 3A 4.7).
const PROTECTED: u32 = 0b11;

/// Bytes that the hypervisor looks at.
const WORD: u64 = 8;

/// What an instruction with a plain operand changes, as it was before; and the page fault that the instruction is if
/// its write is refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before {
    gpr: [u64; 16],
    rip: u64,
    flags: u64,
    fault: Exception,
}

impl Before {
    /// Of an instruction that is at RIP, or starts at `rip`.
    pub(super) fn new(registers: &Registers, rip: u64, fault: Exception) -> Self {
        Self { gpr: registers.gpr, rip, flags: registers.rflags(), fault }
    }

    /// The registers with all of it put back, and the fault.
    pub(super) fn undone(&self, mut registers: Registers) -> (Registers, Exception) {
        registers.gpr = self.gpr;
        registers.rip = self.rip;
        registers.set_rflags(self.flags);
        (registers, self.fault)
    }
}

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
        let old = self.word_around(physical);
        let (start, end) = (offset as usize, offset as usize + operand.size);
        let before = Before::new(&self.context.regs, instruction.ip(), fault);
        self.context.bounce.0[..operand.size].copy_from_slice(&old.to_le_bytes()[start..end]);
        self.call_out(&on_context(instruction, context_offset!(bounce)))?;
        let mut new = old.to_le_bytes();
        new[start..end].copy_from_slice(&self.context.bounce.0[..operand.size]);
        let exit = self.provisional(before, physical, (old, u64::from_le_bytes(new)));
        self.replay.queue(exit);
        Ok(true)
    }

    /// The same for an instruction at which a block has missed with this fault, if it is one of those that store what
    /// is in a register, or a constant; the exit.
    pub(crate) fn write_table_of_block(
        &mut self,
        instruction: &Instruction,
        (linear, size): (Linear, usize),
        fault: Exception,
    ) -> Option<Exit> {
        let offset = linear.0 % WORD;
        if offset + size as u64 > WORD || instruction.op0_kind() != OpKind::Memory {
            return None;
        }
        let found = self.translate_linear(linear, Access::Read, Privilege::Current).ok()?;
        let Place::Ram(_, physical) = found else { return None };
        let old = self.word_around(physical);
        let shift = 8 * offset;
        let mask = u64::MAX >> (64 - 8 * size) << shift;
        let stored = match instruction.code() {
            Code::Xchg_rm64_r64 | Code::Cmpxchg_rm64_r64 => {
                self.register_value(instruction.op1_register())
            }
            _ => self.stored_value(instruction)?,
        };
        let before = Before::new(&self.context.regs, instruction.ip(), fault);
        match instruction.code() {
            Code::Xchg_rm64_r64 => self.set_register(instruction.op1_register(), old),
            Code::Cmpxchg_rm64_r64 if self.register_value(Register::RAX) == old => {
                let regs = &mut self.context.regs;
                // Of two values that are equal (SDM 2A "CMP").
                let equal = rflags::ZF | rflags::PF;
                regs.set_rflags(regs.rflags() & !rflags::STATUS | equal);
            }
            // It stores nothing new, and has something to compute.
            Code::Cmpxchg_rm64_r64 => return None,
            _ => {}
        }
        self.count_assisted(instruction);
        let regs = &mut self.context.regs;
        regs.take_resume_flag();
        regs.rip = instruction.next_ip();
        Some(self.provisional(before, physical, (old, old & !mask | stored << shift & mask)))
    }

    /// The aligned word that holds the byte at an address.
    fn word_around(&self, physical: Physical) -> u64 {
        crate::memory::paging::load(&self.ram, physical.0 & !(WORD - 1), WORD)
    }

    /// The exit of an instruction that has retired, and has not stored the new word.
    fn provisional(&mut self, before: Before, at: Physical, (old, new): (u64, u64)) -> Exit {
        if let Some(state) = &mut self.paravirtual {
            state.before = Some(before);
        }
        Exit::ParavirtualWrite { address: at.0 & !(WORD - 1), old, new }
    }
}

impl Vcpu {
    /// The write that the vCPU has stopped at is a page fault.
    pub fn refuse_paravirtual_write(&mut self) {
        if let Some(fault) = self.undo_write() {
            // What cannot be delivered shuts the processor down, which the next run says.
            let _ = self.busily(|cpu| cpu.raise(fault));
        }
    }

    /// The instruction whose write the vCPU has stopped at is to start over.
    pub fn retry_paravirtual_write(&mut self) {
        self.undo_write();
    }

    fn undo_write(&mut self) -> Option<Exception> {
        let before = self.arch.paravirtual.as_mut()?.before.take()?;
        let fault;
        (self.arch.context.regs, fault) = before.undone(self.arch.context.regs);
        Some(fault)
    }
}

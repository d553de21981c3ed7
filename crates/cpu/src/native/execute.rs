//! Executing one innocuous instruction on the host's CPU, by its call-out (call_out.rs).
//!
//! Operand bytes are read from guest memory before and written back after, with all checks made first, so that an
//! operand may cross pages, lie in device memory, or be anything else that translated code cannot handle.

use std::sync::atomic::AtomicU32;

use iced_x86::{Instruction, OpKind};

use crate::architectural::Architectural;
use crate::context::{Reason, context_offset};
use crate::exception::{Exception, Trap, Vector};
use crate::instruction::{MemoryUse, encodable, immediate_bit_form, memory_use, on_context};
use crate::memory::{Access, Linear, Privilege};

/// The kick flag that a call-out runs under.
static NO_KICK: AtomicU32 = AtomicU32::new(0);

impl Architectural {
    /// Run one innocuous instruction on the host's CPU with the guest's registers. RIP is not
    /// touched.
    ///
    /// # Errors
    ///
    /// The exception the instruction raises; page faults and exits of its memory operand. Nothing
    /// has changed then.
    pub(crate) fn execute_native(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let mut instruction = *instruction;
        instruction.set_code(encodable(instruction.code()));
        let Some(operand) = memory_use(&mut self.info_factory, &instruction) else {
            return self.call_out(&instruction);
        };
        let mut place = self.effective_address(&instruction);
        if let Some(code) = immediate_bit_form(instruction.code()) {
            let bits = 8 * operand.size as u64;
            let index = self.bit_offset(&instruction);
            place =
                place.wrapping_add(((index >> bits.trailing_zeros()) * operand.size as i64) as u64);
            place = self.truncate_address(&instruction, place);
            instruction.set_code(code);
            instruction.set_op1_kind(OpKind::Immediate8);
            instruction.set_immediate8((index as u64 & (bits - 1)) as u8);
        }
        let access = if operand.writes { Access::Write } else { Access::Read };
        let segment = crate::instruction::segment_of(&instruction);
        let linear = self.segmented(segment, place, operand.size as u32, access)?;
        self.run_on_bounce(&instruction, linear, operand)
    }

    /// The signed bit number in the register operand of `bt` and its kin.
    pub(crate) fn bit_offset(&self, instruction: &Instruction) -> i64 {
        let register = instruction.op1_register();
        let value = self.context.regs.gpr[register.full_register().number()];
        match register.size() {
            2 => i64::from(value as i16),
            4 => i64::from(value as i32),
            _ => value as i64,
        }
    }

    fn run_on_bounce(
        &mut self,
        instruction: &Instruction,
        linear: Linear,
        operand: MemoryUse,
    ) -> Result<(), Trap> {
        if self.write_table(instruction, linear, operand)? {
            return Ok(());
        }
        if let Some(place) = self.locked_operand(instruction, linear, operand)? {
            let moved = on_context(instruction, context_offset!(bounce));
            self.watch(linear, operand.size, Access::Write, Privilege::Current);
            return self.run_locked(&moved, place, operand.size);
        }
        let mut bytes = [0u8; 128];
        let bytes = &mut bytes[..operand.size];
        if operand.writes {
            self.probe_linear(linear, operand.size, Access::Write, Privilege::Current)?;
        }
        if operand.reads {
            self.read_linear(linear, bytes, Privilege::Current)?;
        }
        // Only whether the operand is aligned matters to the instruction, not where it is.
        let aligned =
            !operand.size.is_power_of_two() || linear.0.is_multiple_of(operand.size as u64);
        let shift = usize::from(!aligned);
        self.context.bounce.0[shift..shift + operand.size].copy_from_slice(bytes);
        let offset = context_offset!(bounce) + shift as i32;
        self.call_out(&on_context(instruction, offset))?;
        if operand.writes {
            let mut result = [0u8; 128];
            let result = &mut result[..operand.size];
            result.copy_from_slice(&self.context.bounce.0[shift..shift + operand.size]);
            self.write_linear(linear, result, Privilege::Current)?;
        }
        Ok(())
    }

    /// Run an instruction whose operands are registers, or in the context.
    pub(crate) fn call_out(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let Some(target) = self.call_outs.target(instruction) else {
            return Err(Exception::invalid_opcode().into());
        };
        let vectors = crate::instruction::touches_vectors(instruction);
        // A kick is for the run loop, which will see it: the instruction comes first.
        let kick = std::mem::replace(&mut self.context.kick, &raw const NO_KICK);
        // SAFETY: `target` is a call-out in this context's code cache; `run` has prepared the thread.
        let reason = unsafe { super::enter(&mut self.context, target, vectors) };
        self.context.kick = kick;
        match reason {
            Reason::Fault => Err(self.call_out_fault().into()),
            _ => Ok(()),
        }
    }

    /// The exception that the host raised for a call-out.
    fn call_out_fault(&self) -> Exception {
        match self.context.fault.trap {
            0 => Exception::plain(Vector::DivideError),
            6 => Exception::invalid_opcode(),
            16 => Exception::plain(Vector::FloatingPoint),
            17 => Exception::with_error(Vector::AlignmentCheck, 0),
            19 => Exception::plain(Vector::SimdFloatingPoint),
            _ => Exception::general_protection(0),
        }
    }
}

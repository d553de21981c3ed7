//! Executing one innocuous instruction on the host's CPU.
//!
//! A stub is the instruction with its memory operand, if it has one, replaced by the bounce buffer,
//! followed by a jump to the trampoline's way out. Operand bytes are read from guest memory before
//! and written back after, with all checks made first, so that an operand may cross pages, lie in
//! device memory, or be anything else that translated code cannot handle. Stubs are kept by the
//! bytes of the instruction.

use std::sync::atomic::AtomicU32;

use iced_x86::{Encoder, Instruction, OpKind};
use rustc_hash::FxHashMap;

use crate::architectural::Architectural;
use crate::config::Error;
use crate::context::{Context, Reason, context_offset};
use crate::exception::{Exception, Trap, Vector};
use crate::instruction::{MemoryUse, encodable, immediate_bit_form, memory_use, on_context};
use crate::memory::{Access, Linear, Privilege};
use crate::translate::cache::{CodeCache, Part};
use crate::translate::emit::Emitter;

/// Identifies a stub: the instruction as re-encoded, zero padded, and its length.
type Key = ([u8; 24], u8);

/// Longest stub.
const MAX_STUB_BYTES: usize = 64;

/// The kick flag that a stub runs under.
static NO_KICK: AtomicU32 = AtomicU32::new(0);

/// Bytes of address space for one processor's stubs.
const STUB_BYTES: usize = 1 << 20;

/// Stubs by instruction. They are few, and each processor has its own.
pub(crate) struct Stubs {
    cache: CodeCache,
    known: FxHashMap<Key, u64>,
}

impl Stubs {
    /// No stubs yet, in a place that `context` is told.
    ///
    /// # Errors
    ///
    /// As [`CodeCache::new`].
    pub(crate) fn new(context: &mut Context) -> Result<Self, Error> {
        let cache = CodeCache::new(STUB_BYTES, 0)?;
        context.stubs_start = cache.start();
        context.stubs_end = cache.end();
        Ok(Self { cache, known: FxHashMap::default() })
    }
}

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
            return self.run_stub(&instruction);
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
        self.run_stub(&on_context(instruction, offset))?;
        if operand.writes {
            let mut result = [0u8; 128];
            let result = &mut result[..operand.size];
            result.copy_from_slice(&self.context.bounce.0[shift..shift + operand.size]);
            self.write_linear(linear, result, Privilege::Current)?;
        }
        Ok(())
    }

    /// Run an instruction whose operands are registers, or in the context.
    pub(crate) fn run_stub(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let Some(target) = self.stub_for(instruction) else {
            return Err(Exception::invalid_opcode().into());
        };
        let vectors = crate::instruction::touches_vectors(instruction);
        // A kick is for the run loop, which will see it: the instruction comes first.
        let kick = std::mem::replace(&mut self.context.kick, &raw const NO_KICK);
        // SAFETY: `target` is a stub in this context's code cache; `run` has prepared the thread.
        let reason = unsafe { super::enter(&mut self.context, target, vectors) };
        self.context.kick = kick;
        match reason {
            Reason::Fault => Err(self.stub_fault().into()),
            _ => Ok(()),
        }
    }

    /// The exception that the host raised for a stub.
    fn stub_fault(&self) -> Exception {
        match self.context.fault.trap {
            0 => Exception::plain(Vector::DivideError),
            6 => Exception::invalid_opcode(),
            16 => Exception::plain(Vector::FloatingPoint),
            17 => Exception::with_error(Vector::AlignmentCheck, 0),
            19 => Exception::plain(Vector::SimdFloatingPoint),
            _ => Exception::general_protection(0),
        }
    }

    fn stub_for(&mut self, instruction: &Instruction) -> Option<u64> {
        let mut encoder = Encoder::new(64);
        let length = encoder.encode(instruction, 0).ok()?;
        let mut key: Key = ([0; 24], length as u8);
        key.0[..length].copy_from_slice(&encoder.take_buffer());
        if let Some(&known) = self.stubs.known.get(&key) {
            return Some(known);
        }
        if !self.stubs.cache.has_room(MAX_STUB_BYTES) {
            self.stubs.cache.clear();
            self.stubs.known.clear();
        }
        let mut emitter = Emitter::new(self.stubs.cache.next(Part::Bodies));
        emitter.raw(&key.0[..length]);
        emitter.set_field32(context_offset!(reason), Reason::Done as u32);
        emitter.jump_field(context_offset!(leave));
        let target = self.stubs.cache.append(Part::Bodies, emitter.bytes());
        crate::translate::views::serialize();
        self.stubs.known.insert(key, target);
        Some(target)
    }
}

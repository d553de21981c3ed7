//! Gathers and scatters: one access for each element, at addresses from a vector (SDM 2A 2.3.12, 2C
//! "VPGATHERDD"). A gather or scatter that faults clears the mask bits of the elements that are
//! done, so that it can be restarted.

use iced_x86::{EncodingKind, Instruction, Register};

use super::masked::{Elements, low_bits, signs};
use super::operand::{sign_extend, ud};
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::instruction::segment_of;
use crate::memory::{Access, Privilege};

impl Architectural {
    /// The offset of one element of a vector-indexed operand (SDM 2A 2.3.12).
    fn indexed_offset(&self, instruction: &Instruction, index: &[u8; 64], element: usize) -> u64 {
        let size = if instruction.is_vsib32() { 4 } else { 8 };
        let mut raw = [0; 8];
        raw[..size].copy_from_slice(&index[element * size..(element + 1) * size]);
        let scaled = sign_extend(u64::from_le_bytes(raw), size)
            .wrapping_mul(u64::from(instruction.memory_index_scale()));
        let base = match instruction.memory_base() {
            Register::None => 0,
            register => self.register_value(register),
        };
        let offset = base.wrapping_add(scaled).wrapping_add(instruction.memory_displacement64());
        self.truncate_address(instruction, offset)
    }

    /// Number of elements and their size in a gather or scatter with data in `data`.
    fn indexed_shape(instruction: &Instruction, data: Register) -> (usize, usize) {
        let size = instruction.memory_size().size();
        let index_size = if instruction.is_vsib32() { 4 } else { 8 };
        let count = (data.size() / size).min(instruction.memory_index().size() / index_size);
        (count, size)
    }

    /// `vpgatherdd` and its kin, with a vector mask (AVX2) or a mask register (AVX-512).
    pub(crate) fn gather(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let destination = instruction.op0_register();
        let index = instruction.memory_index();
        let by_vector = instruction.encoding() == EncodingKind::VEX;
        let mask = if by_vector { instruction.op2_register() } else { instruction.op_mask() };
        let clash = destination.number() == index.number()
            || by_vector
                && (mask.number() == index.number() || mask.number() == destination.number());
        if clash {
            return Err(ud());
        }
        let (count, size) = Self::indexed_shape(instruction, destination);
        let index = self.vector_register(index.number());
        let active = if by_vector {
            let bytes = self.vector_register(mask.number());
            signs(&bytes, size, count)
        } else {
            self.mask_register(mask.number()) & low_bits(count)
        };
        let mut result = self.vector_register(destination.number());
        for element in (Elements { size, active }).iter() {
            let slot = &mut result[element * size..(element + 1) * size];
            if let Err(trap) = self.gather_element(instruction, &index, element, slot) {
                if matches!(trap, Trap::Exception(_)) && element > 0 {
                    if !by_vector && active & low_bits(element) != 0 {
                        let length = destination.size().max(instruction.memory_index().size());
                        result[length..].fill(0);
                    }
                    self.set_vector_register(destination.number(), &result);
                    self.clear_mask(mask, element, size);
                }
                return Err(trap);
            }
        }
        result[count * size..].fill(0);
        self.set_vector_register(destination.number(), &result);
        self.clear_mask(mask, 64, size);
        Ok(())
    }

    fn gather_element(
        &mut self,
        instruction: &Instruction,
        index: &[u8; 64],
        element: usize,
        slot: &mut [u8],
    ) -> Result<(), Trap> {
        let place = self.indexed_offset(instruction, index, element);
        let segment = segment_of(instruction);
        let at = self.segmented(segment, place, slot.len() as u32, Access::Read)?;
        self.read_linear(at, slot, Privilege::Current)
    }

    /// A gather or scatter that faults keeps what it has done, and takes those elements out of its
    /// mask (SDM 2C "VPGATHERDD"). `done` elements, or all of 64.
    fn clear_mask(&mut self, mask: Register, done: usize, size: usize) {
        if mask.is_k() {
            let rest = self.mask_register(mask.number()) & !low_bits(done);
            self.set_mask_register(mask.number(), rest);
            return;
        }
        let mut bytes = self.vector_register(mask.number());
        bytes[..(done * size).min(64)].fill(0);
        self.set_vector_register(mask.number(), &bytes);
    }

    /// `vpscatterdd` and its kin.
    pub(crate) fn scatter(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let source = instruction.op1_register();
        let mask = instruction.op_mask();
        let (count, size) = Self::indexed_shape(instruction, source);
        let index = self.vector_register(instruction.memory_index().number());
        let bytes = self.vector_register(source.number());
        let active = self.mask_register(mask.number()) & low_bits(count);
        for element in (Elements { size, active }).iter() {
            let value = &bytes[element * size..(element + 1) * size];
            if let Err(trap) = self.scatter_element(instruction, &index, element, value) {
                self.clear_mask(mask, element, size);
                return Err(trap);
            }
        }
        self.clear_mask(mask, 64, size);
        Ok(())
    }

    fn scatter_element(
        &mut self,
        instruction: &Instruction,
        index: &[u8; 64],
        element: usize,
        value: &[u8],
    ) -> Result<(), Trap> {
        let place = self.indexed_offset(instruction, index, element);
        let segment = segment_of(instruction);
        let at = self.segmented(segment, place, value.len() as u32, Access::Write)?;
        self.write_linear(at, value, Privilege::Current)
    }
}

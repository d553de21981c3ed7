//! Vector instructions that access some elements of memory and not others: AVX-512 masked operands,
//! `vmaskmov` and its relatives. Gathers and scatters are in `gather.rs`.
//!
//! Elements that the mask leaves out are not accessed and cannot fault (SDM 1 15.6.4, 2A 2.7). So
//! the interpreter reads the elements in use into the bounce buffer, the host's CPU does the arithmetic
//! on it, and the interpreter writes back only the elements in use.

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::operand::ud;
use super::suppression::{is_spread, suppresses_faults};
use crate::architectural::Architectural;
use crate::context::context_offset;
use crate::exception::Trap;
use crate::instruction::on_context;
use crate::instruction::segment_of;
use crate::memory::{Access, Linear, Privilege};

/// Elements of one memory operand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Elements {
    /// Bytes each.
    pub(super) size: usize,
    /// One bit for each element that is accessed.
    pub(super) active: u64,
}

impl Elements {
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |element| self.active >> element & 1 != 0)
    }
}

/// Bytes in an element of the memory operand, for the purposes of the mask: those of the element
/// that could be broadcast, where that is possible.
fn element_size(instruction: &Instruction) -> usize {
    let info = instruction.op_code();
    let kind =
        if info.can_broadcast() { info.broadcast_memory_size() } else { instruction.memory_size() };
    kind.element_size().max(1)
}

/// Which of `count` elements serve a lane whose bit is set: element `n` serves the lanes `n`,
/// `n + count` and so on.
fn fold(mask: u64, lanes: usize, count: usize) -> u64 {
    let used = mask & low_bits(lanes);
    (0..lanes).step_by(count).fold(0, |set, first| set | used >> first) & low_bits(count)
}

pub(super) fn low_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// The sign bit of each element, as a bit set.
pub(super) fn signs(bytes: &[u8; 64], size: usize, count: usize) -> u64 {
    (0..count).fold(0, |set, element| {
        let sign = bytes[(element + 1) * size - 1] >> 7;
        set | u64::from(sign) << element
    })
}

/// Packed elements: as many as the mask has bits.
fn is_compressed(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    let compresses = matches!(
        mnemonic,
        M::Vpcompressb
            | M::Vpcompressw
            | M::Vpcompressd
            | M::Vpcompressq
            | M::Vcompressps
            | M::Vcompresspd
    );
    let expands = matches!(
        mnemonic,
        M::Vpexpandb | M::Vpexpandw | M::Vpexpandd | M::Vpexpandq | M::Vexpandps | M::Vexpandpd
    );
    compresses || expands
}

impl Architectural {
    /// The elements of a masked memory operand that are accessed.
    fn active_elements(&mut self, instruction: &Instruction) -> Elements {
        let mask = self.mask_register(instruction.op_mask().number());
        let size = element_size(instruction);
        let count = (instruction.memory_size().size() / size).max(1);
        let all = low_bits(count);
        let active = if is_compressed(instruction.mnemonic()) {
            low_bits((mask & all).count_ones() as usize)
        } else if is_spread(instruction.mnemonic()) {
            fold(mask, instruction.op0_register().size() / size, count)
        } else if instruction.is_broadcast() {
            fold(mask, instruction.op_code().memory_size().size() / size, 1)
        } else {
            mask & all
        };
        Elements { size, active }
    }

    /// Read a masked operand: all of it where that is possible, for what the mask leaves out does
    /// not matter then; otherwise the elements in use.
    fn read_masked(&mut self, instruction: &Instruction, bytes: &mut [u8; 64]) -> Result<(), Trap> {
        let elements = self.active_elements(instruction);
        let size = instruction.memory_size().size();
        if is_compressed(instruction.mnemonic()) {
            return self.read_elements(instruction, elements, bytes);
        }
        let Err(trap) = self.read_whole(instruction, &mut bytes[..size]) else { return Ok(()) };
        if !suppresses_faults(instruction) {
            return Err(trap);
        }
        self.replay.withdraw();
        bytes.fill(0);
        self.read_elements(instruction, elements, bytes)
    }

    fn read_whole(&mut self, instruction: &Instruction, bytes: &mut [u8]) -> Result<(), Trap> {
        let at = self.operand_linear(instruction, bytes.len() as u32, Access::Read)?;
        self.read_linear(at, bytes, Privilege::Current)
    }

    fn read_elements(
        &mut self,
        instruction: &Instruction,
        elements: Elements,
        bytes: &mut [u8; 64],
    ) -> Result<(), Trap> {
        let segment = segment_of(instruction);
        let start = self.effective_address(instruction);
        let size = elements.size;
        for element in elements.iter() {
            let place = start.wrapping_add((element * size) as u64);
            let place = self.truncate_address(instruction, place);
            let at = self.segmented(segment, place, size as u32, Access::Read)?;
            let slot = &mut bytes[element * size..(element + 1) * size];
            self.read_linear(at, slot, Privilege::Current)?;
        }
        Ok(())
    }

    /// Write the elements in use, after making sure that all of them can be written.
    fn write_elements(
        &mut self,
        instruction: &Instruction,
        elements: Elements,
        bytes: &[u8; 64],
    ) -> Result<(), Trap> {
        let segment = segment_of(instruction);
        let start = self.effective_address(instruction);
        let size = elements.size;
        for probing in [true, false] {
            for element in elements.iter() {
                let place = start.wrapping_add((element * size) as u64);
                let place = self.truncate_address(instruction, place);
                let at = self.segmented(segment, place, size as u32, Access::Write)?;
                if probing {
                    self.probe_linear(at, size, Access::Write, Privilege::Current)?;
                } else {
                    let value = &bytes[element * size..(element + 1) * size];
                    self.write_linear(at, value, Privilege::Current)?;
                }
            }
        }
        Ok(())
    }

    /// An AVX-512 instruction with a masked memory operand.
    pub(super) fn masked_operand(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        if !crate::instruction::announces(instruction) {
            return Err(ud());
        }
        let elements = self.active_elements(instruction);
        if elements.active != 0 {
            self.check_alignment(instruction)?;
        }
        let stores = instruction.op0_kind() == OpKind::Memory;
        let mut bytes = [0; 64];
        if stores && !suppresses_faults(instruction) {
            let length = instruction.memory_size().size();
            let at = self.operand_linear(instruction, length as u32, Access::Write)?;
            self.probe_linear(at, length, Access::Write, Privilege::Current)?;
        } else if stores {
            self.write_probe(instruction, elements)?;
        } else {
            self.read_masked(instruction, &mut bytes)?;
        }
        // Only whether the operand is aligned matters to the instruction, not where it is.
        let length = instruction.memory_size().size();
        let aligned = self.effective_address(instruction).is_multiple_of(length.max(1) as u64);
        let shift = usize::from(!aligned);
        self.context.bounce.0[shift..shift + 64].copy_from_slice(&bytes);
        let offset = context_offset!(bounce) + shift as i32;
        self.call_out(&on_context(instruction, offset))?;
        if stores {
            bytes.copy_from_slice(&self.context.bounce.0[shift..shift + 64]);
            self.write_elements(instruction, elements, &bytes)?;
        }
        Ok(())
    }

    fn write_probe(&mut self, instruction: &Instruction, elements: Elements) -> Result<(), Trap> {
        let start = self.effective_address(instruction);
        for element in elements.iter() {
            let place = start.wrapping_add((element * elements.size) as u64);
            let place = self.truncate_address(instruction, place);
            let size = elements.size;
            let segment = segment_of(instruction);
            let at = self.segmented(segment, place, size as u32, Access::Write)?;
            self.probe_linear(at, size, Access::Write, Privilege::Current)?;
        }
        Ok(())
    }

    /// `vmaskmovps`, `vpmaskmovd` and their kin: the mask is the signs of a vector register.
    pub(crate) fn move_by_sign(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        use Mnemonic::{Vmaskmovpd, Vpmaskmovq};
        let wide = matches!(instruction.mnemonic(), Vmaskmovpd | Vpmaskmovq);
        let size = if wide { 8 } else { 4 };
        let mask = instruction.op1_register();
        let count = mask.size() / size;
        let mask_bytes = self.vector_register(mask.number());
        let elements = Elements { size, active: signs(&mask_bytes, size, count) };
        if instruction.op0_kind() == OpKind::Memory {
            let bytes = self.vector_register(instruction.op2_register().number());
            return self.write_elements(instruction, elements, &bytes);
        }
        let mut bytes = [0; 64];
        self.read_elements(instruction, elements, &mut bytes)?;
        self.set_vector_register(instruction.op0_register().number(), &bytes);
        Ok(())
    }

    /// `maskmovq`, `maskmovdqu`: bytes to DS:rDI, by the signs of another register's bytes.
    pub(crate) fn store_bytes_by_sign(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let (data, mask) = (instruction.op1_register(), instruction.op2_register());
        let mmx = data.is_mm();
        let (bytes, mask_bytes, count) = if mmx {
            let mut pair = [[0; 64]; 2];
            for (slot, register) in pair.iter_mut().zip([data, mask]) {
                let value = self.mmx_register(register.number());
                slot[..8].copy_from_slice(&value.to_le_bytes());
            }
            (pair[0], pair[1], 8)
        } else {
            (self.vector_register(data.number()), self.vector_register(mask.number()), 16)
        };
        let active = signs(&mask_bytes, 1, count);
        let width = match instruction.op0_kind() {
            OpKind::MemorySegDI => 2,
            OpKind::MemorySegEDI => 4,
            _ => 8,
        };
        let segment = segment_of(instruction);
        for probing in [true, false] {
            for element in (Elements { size: 1, active }).iter() {
                let place = self.context.regs.gpr[7].wrapping_add(element as u64);
                let place = super::operand::truncate(place, width);
                let at = self.segmented(segment, place, 1, Access::Write)?;
                if probing {
                    // A fault is that of the operand's first byte in the page.
                    let first = at.0.saturating_sub(element as u64).max(at.page().0);
                    let at = if mmx { at } else { Linear(first) };
                    self.probe_linear(at, 1, Access::Write, Privilege::Current)?;
                } else {
                    self.write_u8(at, bytes[element], Privilege::Current)?;
                }
            }
        }
        if mmx {
            self.enter_mmx();
        }
        Ok(())
    }
}

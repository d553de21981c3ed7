//! Vector instructions that access some elements of memory and not others: AVX-512 masked operands,
//! `vmaskmov` and its relatives, gathers and scatters.
//!
//! Elements that the mask leaves out are not accessed and cannot fault (SDM 1 15.6.4, 2A 2.7). So
//! the elements in use are read into the bounce buffer, the host's CPU does the arithmetic on it,
//! and of what it stores only the elements in use go back to memory.

use iced_x86::{EncodingKind, Instruction, Mnemonic, OpKind, Register};

use super::Handler;
use super::classify::has_masked_memory;
use super::operand::{sign_extend, ud};
use crate::address::segment_of;
use crate::context::context_offset;
use crate::exception::Trap;
use crate::memory::{Access, Privilege};
use crate::native::stub::on_context;
use crate::vcpu::Vcpu;

/// The handler of an instruction with a conditional memory operand.
pub(super) fn handler(instruction: &Instruction) -> Option<Handler> {
    use Mnemonic as M;
    Some(match instruction.mnemonic() {
        M::Vmaskmovps | M::Vmaskmovpd | M::Vpmaskmovd | M::Vpmaskmovq => Vcpu::move_by_sign,
        M::Maskmovq | M::Maskmovdqu | M::Vmaskmovdqu => Vcpu::store_bytes_by_sign,
        _ if instruction.is_vsib() && instruction.op0_kind() == OpKind::Memory => Vcpu::scatter,
        _ if instruction.is_vsib() => Vcpu::gather,
        _ if has_masked_memory(instruction) => Vcpu::masked_operand,
        _ => return None,
    })
}

/// Elements of one memory operand.
#[derive(Debug, Clone, Copy)]
struct Elements {
    /// Bytes each.
    size: usize,
    /// One bit for each element that is accessed.
    active: u64,
}

impl Elements {
    fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |element| self.active >> element & 1 != 0)
    }
}

fn low_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// The sign bit of each element, as a bit set.
fn signs(bytes: &[u8; 64], size: usize, count: usize) -> u64 {
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

/// Instructions that put one memory operand into several places of a register, or into one of
/// several: bits of the mask do not correspond to its elements.
fn is_spread(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    let broadcasts = matches!(
        mnemonic,
        M::Vbroadcastss
            | M::Vbroadcastsd
            | M::Vpbroadcastb
            | M::Vpbroadcastw
            | M::Vpbroadcastd
            | M::Vpbroadcastq
            | M::Vbroadcastf32x2
            | M::Vbroadcastf32x4
            | M::Vbroadcastf32x8
            | M::Vbroadcastf64x2
            | M::Vbroadcastf64x4
            | M::Vbroadcasti32x2
            | M::Vbroadcasti32x4
            | M::Vbroadcasti32x8
            | M::Vbroadcasti64x2
            | M::Vbroadcasti64x4
    );
    let inserts = matches!(
        mnemonic,
        M::Vinsertf32x4
            | M::Vinsertf32x8
            | M::Vinsertf64x2
            | M::Vinsertf64x4
            | M::Vinserti32x4
            | M::Vinserti32x8
            | M::Vinserti64x2
            | M::Vinserti64x4
    );
    broadcasts || inserts
}

/// Instructions whose result elements come from other elements of the memory operand. Faults of
/// their operand are not suppressed (SDM 2A table 2-49 and on, exception types "NF").
fn is_shuffling(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    let permutes = matches!(
        mnemonic,
        M::Vpermb
            | M::Vpermw
            | M::Vpermd
            | M::Vpermq
            | M::Vpermps
            | M::Vpermpd
            | M::Vpermi2b
            | M::Vpermi2w
            | M::Vpermi2d
            | M::Vpermi2q
            | M::Vpermi2ps
            | M::Vpermi2pd
            | M::Vpermt2b
            | M::Vpermt2w
            | M::Vpermt2d
            | M::Vpermt2q
            | M::Vpermt2ps
            | M::Vpermt2pd
            | M::Vpermilps
            | M::Vpermilpd
            | M::Valignd
            | M::Valignq
            | M::Vpalignr
    );
    let shuffles = matches!(
        mnemonic,
        M::Vpshufb
            | M::Vpshufd
            | M::Vpshufhw
            | M::Vpshuflw
            | M::Vshufps
            | M::Vshufpd
            | M::Vshuff32x4
            | M::Vshuff64x2
            | M::Vshufi32x4
            | M::Vshufi64x2
            | M::Vmovddup
            | M::Vmovshdup
            | M::Vmovsldup
            | M::Vpmultishiftqb
            | M::Vdbpsadbw
            | M::Vpconflictd
            | M::Vpconflictq
            | M::Vpmaddwd
            | M::Vpmaddubsw
    );
    let packs = matches!(
        mnemonic,
        M::Vpacksswb
            | M::Vpackssdw
            | M::Vpackuswb
            | M::Vpackusdw
            | M::Vpunpcklbw
            | M::Vpunpcklwd
            | M::Vpunpckldq
            | M::Vpunpcklqdq
            | M::Vpunpckhbw
            | M::Vpunpckhwd
            | M::Vpunpckhdq
            | M::Vpunpckhqdq
            | M::Vunpcklps
            | M::Vunpcklpd
            | M::Vunpckhps
            | M::Vunpckhpd
    );
    permutes || shuffles || packs
}

/// A shift of all elements by one count in memory, whose faults are not suppressed either.
fn has_shift_count(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    let shifts = matches!(
        instruction.mnemonic(),
        M::Vpsllw
            | M::Vpslld
            | M::Vpsllq
            | M::Vpsrlw
            | M::Vpsrld
            | M::Vpsrlq
            | M::Vpsraw
            | M::Vpsrad
            | M::Vpsraq
    );
    shifts && instruction.op2_kind() == OpKind::Memory
}

/// Whether memory elements correspond to bits of the mask one to one, or there is one of each.
fn is_one_to_one(instruction: &Instruction, elements: usize) -> bool {
    let register = instruction.op0_register();
    let vector = instruction.op0_kind() == OpKind::Register && register.is_vector_register();
    if !vector {
        return true;
    }
    let scalar = elements == 1 && register.is_xmm();
    let size = instruction.memory_size().element_size();
    let full = (size..=8).contains(&(register.size() / elements));
    !is_spread(instruction.mnemonic()) && (scalar || full)
}

/// Bytes in the widest vector register among the operands.
fn widest_vector(instruction: &Instruction) -> usize {
    (0..instruction.op_count())
        .filter(|&operand| instruction.op_kind(operand) == OpKind::Register)
        .map(|operand| instruction.op_register(operand))
        .filter(|register| register.is_vector_register())
        .map(|register| register.size())
        .max()
        .unwrap_or(0)
}

impl Vcpu {
    /// The elements of a masked memory operand that are accessed.
    fn active_elements(&mut self, instruction: &Instruction) -> Elements {
        let mask = self.mask_register(instruction.op_mask().number());
        let kind = instruction.memory_size();
        let size = kind.element_size().max(1);
        let count = (kind.size() / size).max(1);
        let all = low_bits(count);
        let active = if is_compressed(instruction.mnemonic()) {
            low_bits((mask & all).count_ones() as usize)
        } else if !instruction.is_broadcast() && is_one_to_one(instruction, count) {
            mask & all
        } else {
            // One element serves many bits of the mask; which ones matters only to a fault.
            let lanes = widest_vector(instruction) / size;
            if mask & low_bits(lanes) == 0 { 0 } else { all }
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
        if is_shuffling(instruction.mnemonic()) || has_shift_count(instruction) {
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
    fn masked_operand(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        if !super::announces(instruction) {
            return Err(ud());
        }
        let elements = self.active_elements(instruction);
        let stores = instruction.op0_kind() == OpKind::Memory;
        let mut bytes = [0; 64];
        if stores {
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
        self.run_stub(&on_context(instruction, offset))?;
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
    fn move_by_sign(&mut self, instruction: &Instruction) -> Result<(), Trap> {
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
    fn store_bytes_by_sign(&mut self, instruction: &Instruction) -> Result<(), Trap> {
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
    fn gather(&mut self, instruction: &Instruction) -> Result<(), Trap> {
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
                if matches!(trap, Trap::Exception(_)) && active & low_bits(element) != 0 {
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
    fn scatter(&mut self, instruction: &Instruction) -> Result<(), Trap> {
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

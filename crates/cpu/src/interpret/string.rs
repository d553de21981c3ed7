//! String instructions, with their repeat prefixes (SDM 1 7.3.9, 2B "REP").
//!
//! A repeated instruction may be interrupted between two elements. It does a bounded amount of
//! work per call of [`Architectural::step`] and, if there is more to do, leaves RIP at itself, with RCX,
//! RSI and RDI advanced by the elements that are done. A fault in the middle is not raised until the
//! next call finds it at the first element: then the registers account for all elements before it. `movs` and
//! `stos` go page by page where both sides are RAM without breakpoints.

use iced_x86::{Instruction, OpKind};

use super::operand::{merge, truncate};
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::instruction::{StringOperation, segment_of, string_operation};
use crate::memory::{Access, Linear, PAGE_SIZE, Privilege};
use crate::state::{SegmentRegister, rflags};

/// Elements done one at a time before a repeated instruction lets others have a turn.
const MAX_ELEMENTS: usize = 4096;

/// Pages done at once, likewise.
const MAX_PAGES: usize = 16;

const RCX: usize = 1;
const RDX: usize = 2;
const RSI: usize = 6;
const RDI: usize = 7;

/// A decoded string instruction.
#[derive(Debug, Clone, Copy)]
struct StringInstruction {
    operation: StringOperation,
    /// Bytes per element.
    size: usize,
    /// Bytes of RSI, RDI and RCX that count.
    width: usize,
    /// Segment of the source.
    segment: SegmentRegister,
    /// Whether there is a repeat prefix, and the ZF that `cmps` and `scas` go on with.
    repeat: Option<bool>,
}

/// Fill `piece` with elements of `size` bytes.
fn fill(piece: &mut [u8], value: u64, size: usize) {
    let value = truncate(value, size);
    let pattern = match size {
        1 => value * 0x0101_0101_0101_0101,
        2 => value * 0x0001_0001_0001_0001,
        4 => value * 0x0000_0001_0000_0001,
        _ => value,
    };
    let mut words = piece.chunks_exact_mut(8);
    words.by_ref().for_each(|word| word.copy_from_slice(&pattern.to_le_bytes()));
    let rest = words.into_remainder();
    rest.copy_from_slice(&pattern.to_le_bytes()[..rest.len()]);
}

impl StringInstruction {
    fn decode(instruction: &Instruction) -> Option<Self> {
        let (operation, size) = string_operation(instruction.code())?;
        let width = (0..instruction.op_count())
            .find_map(|operand| match instruction.op_kind(operand) {
                OpKind::MemorySegSI | OpKind::MemoryESDI => Some(2),
                OpKind::MemorySegESI | OpKind::MemoryESEDI => Some(4),
                OpKind::MemorySegRSI | OpKind::MemoryESRDI => Some(8),
                _ => None,
            })
            .unwrap_or(8);
        let repeat = if instruction.has_repne_prefix() {
            Some(false)
        } else if instruction.has_rep_prefix() {
            Some(true)
        } else {
            None
        };
        let segment = segment_of(instruction);
        Some(Self { operation, size, width, segment, repeat })
    }

    fn reads_source(&self) -> bool {
        use StringOperation::{Compare, Load, Move, Output};
        matches!(self.operation, Move | Load | Compare | Output)
    }

    fn uses_destination(&self) -> bool {
        !matches!(self.operation, StringOperation::Load | StringOperation::Output)
    }
}

/// The status flags of `a - b` (SDM 2A "CMP").
fn compare_flags(a: u64, b: u64, size: usize) -> u64 {
    let bits = 8 * size as u32;
    let sign = 1u64 << (bits - 1);
    let result = truncate(a.wrapping_sub(b), size);
    let mut flags = 0;
    let mut set = |condition: bool, flag: u64| {
        if condition {
            flags |= flag;
        }
    };
    set(a < b, rflags::CF);
    set((result as u8).count_ones().is_multiple_of(2), rflags::PF);
    set((a ^ b ^ result) & 0x10 != 0, rflags::AF);
    set(result == 0, rflags::ZF);
    set(result & sign != 0, rflags::SF);
    set((a ^ b) & (a ^ result) & sign != 0, rflags::OF);
    flags
}

impl Architectural {
    pub(crate) fn string_instruction(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let Some(string) = StringInstruction::decode(instruction) else {
            return Err(super::operand::ud());
        };
        if matches!(string.operation, StringOperation::Input | StringOperation::Output) {
            let port = self.context.regs.gpr[RDX] as u16;
            self.check_port(port, string.size as u8)?;
        }
        if string.repeat.is_none() {
            return self.element(&string).map(drop);
        }
        if truncate(self.context.regs.gpr[RCX], string.width) == 0 {
            self.end_without_elements(&string);
            return Ok(());
        }
        let more = self.repeat(&string)?;
        if more {
            let length = instruction.len() as u64;
            let back = self.context.regs.rip.wrapping_sub(length);
            self.context.regs.rip = self.truncate_rip(back);
            self.system.set_repeating();
        }
        Ok(())
    }

    /// Nothing to do. Intel's processors clear the upper halves of what 32-bit addressing would
    /// have changed even then; AMD's do not.
    fn end_without_elements(&mut self, string: &StringInstruction) {
        if string.width != 4 || self.system.is_amd() {
            return;
        }
        let moves = string.operation == StringOperation::Move;
        let gpr = &mut self.context.regs.gpr;
        gpr[RCX] = 0;
        if moves {
            gpr[RSI] &= 0xffff_ffff;
        }
        if moves || string.operation == StringOperation::Store {
            gpr[RDI] &= 0xffff_ffff;
        }
    }

    /// Some of the elements; whether there are more.
    fn repeat(&mut self, string: &StringInstruction) -> Result<bool, Trap> {
        let stepping = self.context.regs.rflags() & rflags::TF != 0;
        if !stepping && self.repeat_pages(string)? {
            return Ok(truncate(self.context.regs.gpr[RCX], string.width) != 0);
        }
        let most = if stepping { 1 } else { MAX_ELEMENTS };
        for done in 0..most {
            let going_on = match self.element(string) {
                Ok(going_on) => going_on,
                Err(_) if done > 0 => {
                    // The next call finds the same trap at its first element.
                    self.replay.withdraw();
                    return Ok(true);
                }
                Err(trap) => return Err(trap),
            };
            let left = self.count_down(string, 1);
            if left == 0 || !going_on {
                return Ok(false);
            }
            // A data breakpoint is reported after the element that has hit it (SDM 3B 18.2.4).
            if self.replay.is_used() || self.has_hit_breakpoint() {
                break;
            }
        }
        Ok(true)
    }

    /// Count `elements` off RCX; how many are left.
    fn count_down(&mut self, string: &StringInstruction, elements: u64) -> u64 {
        let counter = &mut self.context.regs.gpr[RCX];
        let left = truncate(counter.wrapping_sub(elements), string.width);
        *counter = merge(*counter, left, string.width);
        left
    }

    fn advance_index(&mut self, register: usize, string: &StringInstruction, elements: u64) {
        let bytes = elements * string.size as u64;
        let backward = self.context.regs.rflags() & rflags::DF != 0;
        let slot = &mut self.context.regs.gpr[register];
        let moved = if backward { slot.wrapping_sub(bytes) } else { slot.wrapping_add(bytes) };
        *slot = merge(*slot, moved, string.width);
    }

    fn advance_indices(&mut self, string: &StringInstruction, elements: u64) {
        if string.reads_source() {
            self.advance_index(RSI, string, elements);
        }
        if string.uses_destination() {
            self.advance_index(RDI, string, elements);
        }
    }

    fn source(&self, string: &StringInstruction, bytes: usize) -> Result<Linear, Trap> {
        let offset = truncate(self.context.regs.gpr[RSI], string.width);
        Ok(self.segmented(string.segment, offset, bytes as u32, Access::Read)?)
    }

    fn destination(
        &self,
        string: &StringInstruction,
        bytes: usize,
        access: Access,
    ) -> Result<Linear, Trap> {
        let offset = truncate(self.context.regs.gpr[RDI], string.width);
        Ok(self.segmented(SegmentRegister::Es, offset, bytes as u32, access)?)
    }

    /// One element; whether a repeated `cmps` or `scas` goes on.
    fn element(&mut self, string: &StringInstruction) -> Result<bool, Trap> {
        let size = string.size;
        let by = Privilege::Current;
        match string.operation {
            StringOperation::Move => {
                let from = self.source(string, size)?;
                let value = self.read_sized(from, size, by)?;
                let to = self.destination(string, size, Access::Write)?;
                self.write_sized(to, value, size, by)?;
            }
            StringOperation::Store => {
                let to = self.destination(string, size, Access::Write)?;
                self.write_sized(to, self.context.regs.gpr[0], size, by)?;
            }
            StringOperation::Load => {
                let from = self.source(string, size)?;
                let value = self.read_sized(from, size, by)?;
                let slot = &mut self.context.regs.gpr[0];
                *slot = merge(*slot, value, size);
            }
            StringOperation::Compare | StringOperation::Scan => {
                return self.compare_element(string);
            }
            StringOperation::Input => {
                let to = self.destination(string, size, Access::Write)?;
                self.probe_linear(to, size, Access::Write, by)?;
                let value = self.port_read(self.context.regs.gpr[RDX] as u16, size as u8)?;
                self.write_sized(to, u64::from(value), size, by)?;
            }
            StringOperation::Output => {
                let from = self.source(string, size)?;
                let value = self.read_sized(from, size, by)?;
                let port = self.context.regs.gpr[RDX] as u16;
                self.port_write(port, size as u8, value as u32);
            }
        }
        self.advance_indices(string, 1);
        Ok(true)
    }

    fn compare_element(&mut self, string: &StringInstruction) -> Result<bool, Trap> {
        let size = string.size;
        let first = if string.operation == StringOperation::Scan {
            truncate(self.context.regs.gpr[0], size)
        } else {
            let from = self.source(string, size)?;
            self.read_sized(from, size, Privilege::Current)?
        };
        let to = self.destination(string, size, Access::Read)?;
        let second = self.read_sized(to, size, Privilege::Current)?;
        self.advance_indices(string, 1);
        let flags = compare_flags(first, second, size);
        let regs = &mut self.context.regs;
        regs.set_rflags(regs.rflags() & !rflags::STATUS | flags);
        Ok(string.repeat.is_none_or(|wanted| (flags & rflags::ZF != 0) == wanted))
    }

    /// `rep movs` and `rep stos` forward through RAM, a page or less at a time; whether anything
    /// was done.
    fn repeat_pages(&mut self, string: &StringInstruction) -> Result<bool, Trap> {
        let suitable = matches!(string.operation, StringOperation::Move | StringOperation::Store);
        if !suitable || self.context.regs.rflags() & rflags::DF != 0 {
            return Ok(false);
        }
        for done in 0..MAX_PAGES {
            let elements = self.copy_piece(string);
            if elements == 0 {
                return Ok(done > 0);
            }
            self.advance_indices(string, elements);
            if self.count_down(string, elements) == 0 || self.is_kicked() {
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// As many elements as fit before the next page boundary on either side; 0 when the piece is
    /// not plain RAM or not accessible: then the slow path finds out what is the matter.
    fn copy_piece(&mut self, string: &StringInstruction) -> u64 {
        let count = truncate(self.context.regs.gpr[RCX], string.width);
        self.try_copy_piece(string, count).unwrap_or(0)
    }

    fn try_copy_piece(&mut self, string: &StringInstruction, count: u64) -> Option<u64> {
        let by = Privilege::Current;
        let size = string.size as u64;
        let to = self.destination(string, 1, Access::Write).ok()?;
        let mut bytes = (PAGE_SIZE - to.offset()).min(count.saturating_mul(size));
        if string.operation == StringOperation::Move {
            let from = self.source(string, 1).ok()?;
            bytes = bytes.min(PAGE_SIZE - from.offset());
            let ahead = to.0.wrapping_sub(from.0);
            if ahead < bytes {
                // The destination overlaps what is still to be read: what was just written is
                // copied again, a piece of the distance at a time.
                bytes = ahead;
            }
        }
        let elements = bytes / size;
        let bytes = (elements * size) as usize;
        if elements == 0 || self.wraps(string, bytes) || self.alignment_is_checked() {
            return None;
        }
        let to = self.destination(string, bytes, Access::Write).ok()?;
        let mut buffer = [0; PAGE_SIZE as usize];
        let piece = &mut buffer[..bytes];
        if string.operation == StringOperation::Move {
            let from = self.source(string, bytes).ok()?;
            if self.is_watched(from, bytes) || !self.reaches_memory(from, Access::Read, by).ok()? {
                return None;
            }
            self.read_linear(from, piece, by).ok()?;
        } else {
            fill(piece, self.context.regs.gpr[0], string.size);
        }
        if self.is_watched(to, bytes) || !self.reaches_memory(to, Access::Write, by).ok()? {
            return None;
        }
        self.write_linear(to, piece, by).ok()?;
        Some(elements)
    }

    /// Whether an index register would wrap around in the next `bytes`.
    fn wraps(&self, string: &StringInstruction, bytes: usize) -> bool {
        let top = truncate(u64::MAX, string.width);
        let gpr = &self.context.regs.gpr;
        let room = |register: usize| top - truncate(gpr[register], string.width);
        let bytes = bytes as u64;
        room(RDI) < bytes || string.reads_source() && room(RSI) < bytes
    }
}

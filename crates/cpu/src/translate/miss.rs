//! TLB misses: filling the software TLB for an access of translated code, and repeating the instruction.

use iced_x86::{Decoder, Instruction, OpKind};

use crate::exception::Exception;
use crate::instruction::{
    Class, class_of, has_masked_memory, immediate_bit_form, memory_use, touches_vectors,
};
use crate::memory::{Access, Linear, PAGE_SIZE, Physical, Privilege};
use crate::run::Resume;
use crate::state::SegmentRegister;
use crate::system::cpuid::decoder_options;
use crate::vcpu::Vcpu;

use super::Translator;
use super::action::Repeated;
use super::block::Mark;
use super::host_code::HostCode;
use super::string::{repeated, single};

/// What an instruction accesses first: where, how many bytes, and how.
type Wanted = (Linear, usize, Access);

/// Where an instruction of a block can be tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restart {
    /// Host address.
    at: HostCode,
    /// Whether x87 and vector state must be loaded there.
    vectors: bool,
    /// Whether the instruction comes after an `sti` (invariant 7).
    sheltered: bool,
}

/// The result of filling the TLB.
enum Filled {
    /// It has all that the instruction accesses.
    All,
    /// It has, and the instruction's operand lies in two pages (crossing.rs).
    Crossing,
    /// The one operand, at this address and of so many bytes, is perhaps in a table of a paravirtual kernel's
    /// (paravirtual/write.rs).
    Table((Linear, usize), Exception),
    /// The interpreter is needed.
    NotEnough,
}

impl Restart {
    /// A place in a block behind an instruction that is complete.
    pub(super) fn new(at: HostCode, vectors: bool) -> Self {
        Self { at, vectors, sheltered: false }
    }

    /// As [`Resume::At`] has it.
    pub(super) fn place(self) -> (HostCode, bool) {
        (self.at, self.vectors)
    }
}

impl Translator {
    /// The guest-physical address of the instruction whose host code contains `host`, its mark, and
    /// where it starts.
    pub(crate) fn instruction_at(&self, host: HostCode) -> Option<(Physical, u32, Restart)> {
        let block = &self.blocks[self.block_at(host)? as usize];
        let marks = &self.marks[block.marks.start as usize..block.marks.end as usize];
        let offset = (host - self.cache.start()) as u32;
        let after = marks.partition_point(|mark| mark.host <= offset);
        let guest = marks[after.checked_sub(1)?].guest;
        // Not the mark of a second way (crossing.rs).
        let index = marks.iter().position(|mark| mark.guest == guest)?;
        let physical = block.key.physical.plus(u64::from(marks[index].guest));
        let mark = block.marks.start + index as u32;
        Some((physical, mark, self.restart_at(mark)))
    }

    /// Where the instruction after that with this mark starts, which is of so many bytes, if the block
    /// has it.
    pub(super) fn restart_after(&self, mark: u32, length: usize) -> Option<Restart> {
        let Mark { block, guest, .. } = self.marks[mark as usize];
        let mut marks = self.blocks[block as usize].marks.clone();
        let next = guest + length as u16;
        // The first of these: there may be a second way (crossing.rs).
        marks
            .find(|&mark| self.marks[mark as usize].guest == next)
            .map(|mark| self.restart_at(mark))
    }

    /// Where the instruction with this mark starts.
    pub(super) fn restart_at(&self, mark: u32) -> Restart {
        let Mark { host, block, .. } = self.marks[mark as usize];
        Restart {
            at: self.cache.start() + u64::from(host),
            vectors: self.blocks[block as usize].live.is_some(),
            sheltered: self.sheltered.contains(&mark),
        }
    }
}

impl Vcpu {
    /// Fill the TLB and repeat the instruction; or, where that is not enough (devices, pages with
    /// code, faults, operands that cross pages as a rule), interpret it.
    pub(crate) fn serve_miss(&mut self) -> Resume {
        self.arch.statistics.misses += 1;
        let translator = self.arch.group.translator();
        let mark = translator.marks[self.arch.context.detail as usize];
        let block = &translator.blocks[mark.block as usize];
        let (key, straddles) = (block.key, block.second.is_some());
        let restart = translator.restart_at(self.arch.context.detail);
        let rip = block.linear_of(mark, Linear(self.arch.context.code_page));
        drop(translator);
        self.arch.context.regs.rip = rip.0;
        if straddles {
            return Resume::Dispatch(self.interpret());
        }
        let physical = key.physical.plus(u64::from(mark.guest));
        let Some(instruction) = self.instruction_in_page(physical) else {
            return Resume::Dispatch(self.interpret());
        };
        let helped = match self.fill_for(&instruction) {
            Ok(Filled::All) => return self.try_again(restart),
            Ok(Filled::Crossing) => {
                return self.serve_crossing(&instruction, (key, physical), restart);
            }
            Ok(Filled::Table(operand, fault)) if !restart.sheltered && self.helps_missed() => {
                let exit = self.arch.write_table_of_block(&instruction, operand, fault);
                exit.map(|exit| Resume::Dispatch(Some(exit)))
            }
            Ok(Filled::Table(..)) => None,
            Ok(Filled::NotEnough) => self.help_missed(&instruction, self.arch.context.detail),
            Err(fault) => return Resume::Dispatch(self.raise(fault)),
        };
        helped.unwrap_or_else(|| Resume::Dispatch(self.interpret()))
    }

    /// Go on with an instruction of which a miss has been dealt with.
    pub(crate) fn try_again(&mut self, restart: Restart) -> Resume {
        if restart.sheltered {
            return Resume::Dispatch(self.interpret());
        }
        Resume::At((restart.at, restart.vectors))
    }

    /// Fill the TLB for what an instruction accesses.
    ///
    /// # Errors
    ///
    /// The instruction's page fault, where it is certain that this is what it raises.
    fn fill_for(&mut self, instruction: &Instruction) -> Result<Filled, Exception> {
        let wanted = self.accesses(instruction);
        let crosses = |&(at, size, _): &Wanted| at.offset() as usize + size > PAGE_SIZE as usize;
        if let [Some(operand), None] = wanted
            && crosses(&operand)
        {
            return Ok(self.fill_both(instruction, operand));
        }
        // Accesses in their order, which no alignment check goes before and no part of the work.
        let is_repeated = repeated(instruction).is_some();
        let is_simple = if is_repeated {
            self.arch.context.regs.gpr[1] != 0
        } else {
            wanted[1].is_none()
                && class_of(instruction.code()) != Class::InterruptReturn
                && !touches_vectors(instruction)
                && !instruction.has_rep_prefix()
                && !instruction.has_repne_prefix()
        };
        // A store that its mask keeps from the page must not make it dirty.
        let masked = has_masked_memory(instruction);
        for (at, size, access) in wanted.into_iter().flatten() {
            if !at.is_canonical() || crosses(&(at, size, access)) {
                return Ok(Filled::NotEnough);
            }
            if self.arch.is_cached(at, access) {
                continue;
            }
            if masked && access == Access::Write {
                return Ok(Filled::NotEnough);
            }
            match self.arch.translate_linear(at, access, Privilege::Current) {
                Ok(_) => {}
                Err(fault) if is_simple && !self.arch.may_be_table(fault) => return Err(fault),
                Err(fault) if is_simple && !is_repeated => {
                    return Ok(Filled::Table((at, size), fault));
                }
                Err(_) => return Ok(Filled::NotEnough),
            }
        }
        // Two pages may want the same entry; and a page may not be given a tag at all.
        let mut all = wanted.into_iter().flatten();
        let are_there = all.all(|(at, _, access)| self.arch.is_cached(at, access));
        Ok(if are_there { Filled::All } else { Filled::NotEnough })
    }

    /// The same for an operand that crosses a page. The interpreter finds any fault.
    fn fill_both(&mut self, instruction: &Instruction, (at, size, access): Wanted) -> Filled {
        let masked = has_masked_memory(instruction) && access == Access::Write;
        let next = Linear(at.page().0.wrapping_add(PAGE_SIZE));
        let wraps = self.arch.context.regs.mode().linear(next) != next;
        if size > PAGE_SIZE as usize || masked || wraps {
            return Filled::NotEnough;
        }
        let mut fill = |at: Linear| {
            at.is_canonical()
                && (self.arch.is_cached(at, access)
                    || self.arch.translate_linear(at, access, Privilege::Current).is_ok()
                        && self.arch.is_cached(at, access))
        };
        if fill(at) && fill(next) { Filled::Crossing } else { Filled::NotEnough }
    }

    /// The instruction at `physical`, if all of it is in the page.
    pub(crate) fn instruction_in_page(&self, physical: Physical) -> Option<Instruction> {
        let host = self.arch.ram.host(physical)?;
        let left = ((PAGE_SIZE - (physical.0 & (PAGE_SIZE - 1))) as usize).min(15);
        // SAFETY: RAM up to the end of the page; the bytes are copied before they are looked at.
        let bytes = unsafe {
            let mut bytes = [0u8; 15];
            std::ptr::copy_nonoverlapping(host, bytes.as_mut_ptr(), left);
            bytes
        };
        let rip = self.arch.context.regs.rip;
        let bits = self.arch.context.regs.code_bits();
        let instruction = Decoder::with_ip(bits, &bytes[..left], rip, decoder_options()).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The accesses of an instruction that has a translation, in the order of its look-ups.
    fn accesses(&mut self, instruction: &Instruction) -> [Option<Wanted>; 2] {
        if let Some(repeated) = repeated(instruction) {
            return self.repeated_accesses(repeated);
        }
        let regs = &self.arch.context.regs;
        let mode = regs.mode();
        let word = mode.bits() as usize / 8;
        let place = |address| mode.linear(Linear(address));
        if let Some(Repeated { size, copies }) = single(instruction) {
            let to = (place(regs.gpr[7]), size as usize, Access::Write);
            let from = copies.then_some((place(regs.gpr[6]), size as usize, Access::Read));
            return if copies { [from, Some(to)] } else { [Some(to), None] };
        }
        let push = Some((place(regs.gpr[4].wrapping_sub(word as u64)), word, Access::Write));
        match class_of(instruction.code()) {
            Class::Push if instruction.op0_kind() == OpKind::Memory => {
                [self.explicit(instruction), push]
            }
            Class::Push | Class::PushFlags => [push, None],
            Class::CallNear if instruction.is_call_near() => [push, None],
            Class::CallNear => [self.explicit(instruction), push],
            Class::Pop | Class::PopFlags | Class::ReturnNear => {
                [Some((place(regs.gpr[4]), word, Access::Read)), None]
            }
            Class::LeaveFrame => [Some((place(regs.gpr[5]), word, Access::Read)), None],
            Class::InterruptReturn => self.arch.return_accesses(),
            _ => [self.explicit(instruction), None],
        }
    }

    /// Where a repeated instruction goes on, as far as that is in one page.
    fn repeated_accesses(&self, repeated: Repeated) -> [Option<Wanted>; 2] {
        let gpr = &self.arch.context.regs.gpr;
        if gpr[1] & self.arch.context.count_mask != 0 {
            // So many are not for the translation.
            return [Some((Linear(gpr[7]), usize::MAX / 2, Access::Write)), None];
        }
        let piece = |at: u64| {
            let left = (PAGE_SIZE - Linear(at).offset()) as usize;
            let size = repeated.size as usize;
            let wanted = gpr[1] as usize * size;
            // An element beyond the page will be refused as an access that crosses pages.
            (Linear(at), wanted.min(left.max(size)))
        };
        let (to, from) = (piece(gpr[7]), piece(gpr[6]));
        let from = repeated.copies.then_some((from.0, from.1, Access::Read));
        let to = Some((to.0, to.1, Access::Write));
        // An element is read before it is written.
        if from.is_some() { [from, to] } else { [to, None] }
    }

    pub(super) fn explicit(&mut self, instruction: &Instruction) -> Option<Wanted> {
        let usage = memory_use(&mut self.arch.info_factory, instruction)?;
        let mut offset = self.arch.effective_address(instruction);
        if immediate_bit_form(instruction.code()).is_some() {
            let word = self.arch.bit_offset(instruction) >> (8 * usage.size).trailing_zeros();
            offset = offset.wrapping_add((word * usage.size as i64) as u64);
            offset = self.arch.truncate_address(instruction, offset);
        }
        let base = match crate::instruction::segment_of(instruction) {
            segment @ (SegmentRegister::Fs | SegmentRegister::Gs) => {
                self.arch.context.regs.segment(segment).base
            }
            _ => 0,
        };
        let access = if usage.writes { Access::Write } else { Access::Read };
        let mode = self.arch.context.regs.mode();
        Some((mode.linear(Linear(base.wrapping_add(offset))), usage.size, access))
    }
}

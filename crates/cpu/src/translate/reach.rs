//! Emitting accesses to guest memory: through the kernel's mirror (memory/mirror.rs), through a
//! coalesced's look-up (coalesce.rs), or by a TLB look-up of the instruction's own (memory/tlb.rs).

use iced_x86::{Code, Instruction, MemoryOperand, Mnemonic, OpKind, Register};

use super::builder::{Builder, Later, Second};
use super::emit::{at, field, gpr8, in_tlb};
use super::host_code::HostCode;
use crate::context::context_offset;
use crate::instruction::without_moffs;
use crate::instruction::{MemoryUse, address_bits, immediate_bit_form};
use crate::memory::Linear;
use crate::memory::place::BASE;
use crate::memory::tlb::Entries;
use crate::state::{CodeSize, Registers, Segment};

pub(super) fn set_offset(array: usize) -> i32 {
    array as i32
}

/// Where the base of FS or GS is.
pub(super) fn segment_base(register: Register) -> i32 {
    let number = if register == Register::FS { 4 } else { 5 };
    (std::mem::offset_of!(crate::context::Context, regs)
        + std::mem::offset_of!(Registers, segments)
        + number * size_of::<Segment>()
        + std::mem::offset_of!(Segment, base)) as i32
}

impl Builder<'_> {
    /// Make an operand of registers only accessible, one way or the other: what to use instead.
    pub(super) fn reach(
        &mut self,
        address: MemoryOperand,
        size: usize,
        write: bool,
        mark: u32,
    ) -> MemoryOperand {
        if self.native {
            return MemoryOperand { segment_prefix: Register::GS, ..address };
        }
        if let Some(access) = self.coalesced {
            return self.coalesced_operand(access, mark);
        }
        self.look_up(address, size, write, mark);
        self.found()
    }

    /// Make what s0 points at accessible: what to use instead.
    pub(super) fn reach_in_s0(&mut self, size: usize, write: bool, mark: u32) -> MemoryOperand {
        if self.native {
            let [s0, ..] = self.s();
            let address = at(s0, Register::None, 0);
            return MemoryOperand { segment_prefix: Register::GS, ..address };
        }
        self.look_up_in_s0(size, write, mark);
        self.found()
    }

    /// The same for an instruction's explicit operand.
    pub(super) fn reach_operand(
        &mut self,
        instruction: &Instruction,
        size: usize,
        write: bool,
        mark: u32,
    ) -> MemoryOperand {
        self.operand_address(instruction);
        self.reach_in_s0(size, write, mark)
    }

    /// An instruction with an explicit memory operand, through the mirror; false if the operand
    /// cannot be encoded.
    fn on_mirror(&mut self, instruction: &Instruction) -> bool {
        let mut moved = *instruction;
        moved.set_segment_prefix(Register::GS);
        if let Some(code) = without_moffs(instruction.code()) {
            moved.set_code(code);
        }
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let displacement = instruction.memory_displacement64();
        let segment = matches!(instruction.memory_segment(), Register::FS | Register::GS);
        let plain = base.is_gpr64() || (base == Register::None && index.is_gpr64());
        let absolute = instruction.is_ip_rel_memory_operand()
            || (base == Register::None && index == Register::None);
        let short = i64::from(displacement as i32) == displacement as i64;
        let [s0, ..] = self.s();
        let (new_base, new_index) = match (absolute, segment, plain) {
            (true, false, _) if short => (Register::None, Register::None),
            (true, true, _) if short => {
                self.out.load(s0, field(segment_base(instruction.memory_segment())));
                (s0, Register::None)
            }
            (false, false, true) => (base, index),
            (false, true, true) if base != Register::None && index == Register::None => {
                self.out.load(s0, field(segment_base(instruction.memory_segment())));
                (base, s0)
            }
            _ => {
                self.operand_address(instruction);
                moved.set_memory_displacement64(0);
                moved.set_memory_displ_size(0);
                (s0, Register::None)
            }
        };
        moved.set_memory_base(new_base);
        moved.set_memory_index(new_index);
        if new_index != index {
            moved.set_memory_index_scale(1);
        }
        if absolute && moved.memory_displacement64() != 0 || new_base == Register::None {
            moved.set_memory_displ_size(8);
        }
        self.out.try_instruction(&moved)
    }

    /// The operand that a look-up has found.
    pub(super) fn found(&self) -> MemoryOperand {
        let [s0, s1, _] = self.s();
        at(s1, s0, 0)
    }

    /// An instruction with an explicit memory operand; false if the operand cannot be replaced.
    pub(super) fn on_memory(
        &mut self,
        instruction: &Instruction,
        usage: MemoryUse,
        mark: u32,
    ) -> bool {
        if self.native {
            return self.on_mirror(instruction);
        }
        if let Some(access) = self.coalesced {
            return self.coalesced_instruction(instruction, access, mark);
        }
        let [s0, s1, _] = self.s();
        let (mut moved, high) = self.without_high_byte(instruction);
        moved.set_segment_prefix(Register::None);
        moved.set_memory_base(s1);
        moved.set_memory_index(s0);
        moved.set_memory_index_scale(1);
        moved.set_memory_displacement64(0);
        moved.set_memory_displ_size(0);
        if let Some(code) = without_moffs(instruction.code()) {
            moved.set_code(code);
        }
        let mut probe = iced_x86::Encoder::new(64);
        if probe.encode(&moved, self.out.here().0).is_err() {
            return false;
        }
        let numbered = immediate_bit_form(instruction.code()).is_some();
        let narrow = !self.key.is_64_bit() || address_bits(instruction, CodeSize::Bits64) == 32;
        if numbered && narrow && matches!(instruction.memory_segment(), Register::FS | Register::GS)
        {
            // The distance would have to wrap before the segment's base is added.
            return false;
        }
        self.operand_address(instruction);
        if numbered {
            self.bit_operand(&moved, narrow, usage, mark);
            return true;
        }
        let displacement = self.look_up_entry(usage.size, usage.writes);
        self.load_host();
        let found = self.out.here();
        self.load_high_byte(high);
        self.out.instruction(&moved);
        let done = self.out.here();
        self.postpone(if self.crosses {
            let moved = (moved, high);
            Later::Second(Box::new(Second { at: displacement, mark, usage, moved, found, done }))
        } else {
            Later::Miss { at: displacement, mark }
        });
        true
    }

    /// An instruction of which the operand in memory will be named by scratch registers, as a rule
    /// those with a REX prefix; AH to DH cannot be named beside one. Where such a register is only
    /// read, s2 takes its place, to be filled by [`Self::load_high_byte`].
    pub(super) fn without_high_byte(
        &self,
        instruction: &Instruction,
    ) -> (Instruction, Option<Register>) {
        use Mnemonic::{Adc, Add, And, Cmp, Mov, Or, Sbb, Sub, Test, Xor};
        let is_high = |operand: &u32| {
            let (kind, register) =
                (instruction.op_kind(*operand), instruction.op_register(*operand));
            kind == OpKind::Register
                && matches!(register, Register::AH | Register::CH | Register::DH | Register::BH)
        };
        let reads = match instruction.mnemonic() {
            Cmp | Test => 0..2,
            Mov | Add | Or | Adc | Sbb | And | Sub | Xor => 1..2,
            _ => 0..0,
        };
        let mut moved = *instruction;
        let Some(operand) = reads.into_iter().find(is_high) else { return (moved, None) };
        let [_, _, s2] = self.s();
        moved.set_op_register(operand, gpr8(s2));
        (moved, Some(instruction.op_register(operand)))
    }

    /// What [`Self::without_high_byte`] has taken out, into s2.
    pub(super) fn load_high_byte(&mut self, high: Option<Register>) {
        let [_, _, s2] = self.s();
        if let Some(register) = high {
            self.out.rotate(s2, register.full_register(), 8);
        }
    }

    /// `bt` and its kin with a bit offset in a register, which reach beyond their operand: look up
    /// the word that holds the bit, and let the instruction find it from where it would start.
    /// `narrow`: the address has 32 bits.
    fn bit_operand(&mut self, moved: &Instruction, narrow: bool, usage: MemoryUse, mark: u32) {
        let [s0, s1, s2] = self.s();
        let size = usage.size;
        self.word_of_bit(moved.op1_register(), size);
        if narrow {
            self.out.lea32(s0, at(s0, s1, 0));
        } else {
            self.out.lea(s0, at(s0, s1, 0));
        }
        self.look_up_in_s0(size, usage.writes, mark);
        self.out.store(field(context_offset!(temporary)), s1);
        self.word_of_bit(moved.op1_register(), size);
        self.out.copy(s2, s1);
        self.out.load(s1, field(context_offset!(temporary)));
        self.out.negate_into_sum(s0, s2);
        self.out.instruction(moved);
    }

    /// Into s1 the distance in bytes of the word of `size` bytes that holds the bit numbered by
    /// `register`; s2 is lost.
    fn word_of_bit(&mut self, register: Register, size: usize) {
        let [_, s1, s2] = self.s();
        let number = register.full_register();
        if size == 4 {
            self.out.sign_extend32(s1, register);
        } else {
            self.out.copy(s1, number);
        }
        self.out.constant(s2, 3);
        self.out.shift_right_arithmetic(s1, s1, s2);
        let mask =
            if size == 4 { context_offset!(word4_mask) } else { context_offset!(word8_mask) };
        self.masked(s1, mask);
    }

    /// The linear address of an instruction's operand into s0.
    pub(super) fn operand_address(&mut self, instruction: &Instruction) {
        let [s0, s1, _] = self.s();
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let displacement = instruction.memory_displacement64();
        if instruction.is_ip_rel_memory_operand() {
            self.address(s0, Linear(displacement));
        } else if base == Register::None && index == Register::None {
            self.out.constant(s0, displacement);
        } else {
            let narrow = base.is_gpr32() || index.is_gpr32();
            let operand = MemoryOperand::new(
                base,
                index,
                instruction.memory_index_scale(),
                displacement as i64,
                instruction.memory_displ_size(),
                false,
                Register::None,
            );
            let (code, to) = if narrow {
                (Code::Lea_r32_m, super::emit::gpr32(s0))
            } else {
                (Code::Lea_r64_m, s0)
            };
            let built = Instruction::with2(code, to, operand);
            self.out.instruction(&built.expect("operands fit the code"));
        }
        if let segment @ (Register::FS | Register::GS) = instruction.memory_segment() {
            self.out.load(s1, field(segment_base(segment)));
            self.point(s0, at(s0, s1, 0));
        }
    }

    /// Look up an address that is an operand of registers only.
    pub(super) fn look_up(&mut self, address: MemoryOperand, size: usize, write: bool, mark: u32) {
        let [s0, ..] = self.s();
        self.out.lea(s0, address);
        self.look_up_in_s0(size, write, mark);
    }

    /// Look up the address in s0 (memory/tlb.rs): s0 becomes the offset in the page, s1 the page's
    /// host address. Leaves everything else alone.
    pub(super) fn look_up_in_s0(&mut self, size: usize, write: bool, mark: u32) {
        let displacement = self.look_up_entry(size, write);
        self.postpone(if self.coalesced.is_some() {
            Later::Plain { at: displacement, mark }
        } else {
            Later::Miss { at: displacement, mark }
        });
        self.load_host();
    }

    /// The first part of that: the displacement of the jump where the page is not there, or not all of the
    /// access is in it. After that, the guest's RCX is in s2, and the number of the entry in s1.
    pub(super) fn look_up_entry(&mut self, size: usize, write: bool) -> HostCode {
        let [s0, s1, s2] = self.s();
        let tags = if write {
            std::mem::offset_of!(Entries, write)
        } else {
            std::mem::offset_of!(Entries, read)
        };
        self.out.extract(s1, s0, context_offset!(page_index_mask));
        self.out.copy(s2, Register::RCX);
        let tag = self.indexed(Register::RCX, s1, set_offset(tags));
        self.out.load(Register::RCX, tag);
        self.out.lea(s0, at(s0, Register::RCX, 0));
        if size > 1 {
            self.out.lea(Register::RCX, at(s0, Register::None, size as i32 - 1));
            self.out.extract(Register::RCX, Register::RCX, context_offset!(page_number_mask));
        } else {
            self.out.extract(Register::RCX, s0, context_offset!(page_number_mask));
        }
        self.out.jump_unless_rcx_zero()
    }

    /// The second part: the host address of the page.
    pub(super) fn load_host(&mut self) {
        let [_, s1, s2] = self.s();
        self.out.copy(Register::RCX, s2);
        let host = self.indexed(s2, s1, set_offset(std::mem::offset_of!(Entries, host)));
        self.out.load(s1, host);
    }

    /// Element `index` of an array in the active TLB; `pointer` is lost.
    pub(super) fn indexed(
        &mut self,
        pointer: Register,
        index: Register,
        array: i32,
    ) -> MemoryOperand {
        if !self.kernel {
            return in_tlb(Register::None, index, array);
        }
        self.out.load(pointer, field(context_offset!(tlb)));
        super::emit::scaled(pointer, index, 8, array)
    }

    /// Have translated code use the TLB at a field of the context from here on; s0 is lost.
    pub(super) fn use_tlb(&mut self, kernel: bool, offset: i32) {
        self.use_set_at(kernel, field(offset));
    }

    /// The same with the TLB at a place, which s0 may be a part of.
    pub(super) fn use_set_at(&mut self, kernel: bool, place: MemoryOperand) {
        let [s0, ..] = self.s();
        self.out.load(s0, place);
        let native = self.key.mode.native && kernel;
        if native {
            self.out.store(field(context_offset!(tlb)), s0);
            if !self.kernel {
                self.out.constant(s0, BASE);
            }
        }
        if !native || !self.kernel {
            self.out.set_gs_base(s0);
        }
        self.kernel = native;
    }
}

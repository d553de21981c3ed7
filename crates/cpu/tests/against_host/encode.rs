//! From a form in iced's tables to bytes: one random encoding of it.

use iced_x86::{
    Code, Encoder, Instruction, MemoryOperand, OpCodeOperandKind as Kind, OpKind, Register,
    RoundingControl,
};

use super::layout::{self, DATA};
use super::random::Random;

/// Encode `code` with random operands as the instruction at `rip`. `None` when the operands that
/// came up cannot be encoded together (AH with REX, ...): try again.
pub fn encode(code: Code, bits: u32, rip: u64, random: &mut Random) -> Option<Vec<u8>> {
    let mut maker = Maker { instruction: Instruction::default(), bits, rip, random, memory: false };
    maker.instruction.set_code(code);
    let form = code.op_code();
    for operand in 0..form.op_count() {
        maker.operand(operand, form.op_kind(operand))?;
    }
    maker.decorate();
    let mut instruction = maker.instruction;
    // The encoder measures branches from the end of a legacy-prefixed instruction by itself.
    let mut encoder = Encoder::new(bits);
    instruction.set_ip(rip);
    encoder.encode(&instruction, rip).ok()?;
    let mut bytes = encoder.take_buffer();
    if random.chance(4) {
        // A prefix that changes nothing, or something: whatever comes out is a case, too.
        bytes.insert(0, random.pick(&[0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3]));
    }
    (bytes.len() <= 15).then_some(bytes)
}

struct Maker<'a> {
    instruction: Instruction,
    bits: u32,
    rip: u64,
    random: &'a mut Random,
    memory: bool,
}

impl Maker<'_> {
    fn operand(&mut self, operand: u32, kind: Kind) -> Option<()> {
        if let Some(register) = self.register(kind) {
            self.instruction.set_op_kind(operand, OpKind::Register);
            self.instruction.set_op_register(operand, register);
            return Some(());
        }
        if is_memory(kind) {
            self.instruction.set_op_kind(operand, OpKind::Memory);
            self.address(kind);
            self.memory = true;
            return Some(());
        }
        self.immediate(operand, kind).or_else(|| self.branch(operand, kind))
            .or_else(|| self.implied(operand, kind))
    }

    /// The register for an operand that is one, or that is decided to be one.
    fn register(&mut self, kind: Kind) -> Option<Register> {
        let in_memory = self.random.chance(60);
        let (first, most) = match kind {
            Kind::r8_or_mem if !in_memory => return Some(self.byte_register()),
            Kind::r8_reg | Kind::r8_opcode => return Some(self.byte_register()),
            Kind::r16_or_mem if !in_memory => (Register::AX, 16),
            Kind::r32_or_mem | Kind::r32_or_mem_mpx if !in_memory => (Register::EAX, 16),
            Kind::r64_or_mem | Kind::r64_or_mem_mpx if !in_memory => (Register::RAX, 16),
            Kind::mm_or_mem if !in_memory => (Register::MM0, 8),
            Kind::xmm_or_mem if !in_memory => (Register::XMM0, 32),
            Kind::ymm_or_mem if !in_memory => (Register::YMM0, 32),
            Kind::zmm_or_mem if !in_memory => (Register::ZMM0, 32),
            Kind::bnd_or_mem_mpx if !in_memory => (Register::BND0, 4),
            Kind::k_or_mem if !in_memory => (Register::K0, 8),
            Kind::r16_reg | Kind::r16_reg_mem | Kind::r16_rm | Kind::r16_opcode => {
                (Register::AX, 16)
            }
            Kind::r32_reg | Kind::r32_reg_mem | Kind::r32_rm | Kind::r32_opcode
            | Kind::r32_vvvv => (Register::EAX, 16),
            Kind::r64_reg | Kind::r64_reg_mem | Kind::r64_rm | Kind::r64_opcode
            | Kind::r64_vvvv => (Register::RAX, 16),
            Kind::seg_reg => (Register::ES, 6),
            Kind::k_reg | Kind::kp1_reg | Kind::k_rm | Kind::k_vvvv => (Register::K0, 8),
            Kind::mm_reg | Kind::mm_rm => (Register::MM0, 8),
            Kind::xmm_reg | Kind::xmm_rm | Kind::xmm_vvvv | Kind::xmmp3_vvvv => {
                (Register::XMM0, 32)
            }
            Kind::ymm_reg | Kind::ymm_rm | Kind::ymm_vvvv => (Register::YMM0, 32),
            Kind::zmm_reg | Kind::zmm_rm | Kind::zmm_vvvv | Kind::zmmp3_vvvv => {
                (Register::ZMM0, 32)
            }
            Kind::xmm_is4 | Kind::xmm_is5 => (Register::XMM0, 16),
            Kind::ymm_is4 | Kind::ymm_is5 => (Register::YMM0, 16),
            Kind::cr_reg => (Register::CR0, 16),
            Kind::dr_reg => (Register::DR0, 8),
            Kind::tr_reg => (Register::TR0, 8),
            Kind::bnd_reg => (Register::BND0, 4),
            Kind::tmm_reg | Kind::tmm_rm | Kind::tmm_vvvv => (Register::TMM0, 8),
            Kind::sti_opcode => (Register::ST0, 8),
            other => return fixed(other),
        };
        let most = if self.bits == 32 { most.min(8) } else { most };
        // VEX and legacy forms have only 16 vector registers: half of the time, and of necessity.
        let most = if most == 32 && self.random.chance(70) { 16 } else { most };
        Some(first + self.random.below(most) as u32)
    }

    fn byte_register(&mut self) -> Register {
        Register::AL + self.random.below(if self.bits == 32 { 8 } else { 20 }) as u32
    }

    /// A random memory operand; the registers in it are given their values later.
    fn address(&mut self, kind: Kind) {
        let vector = match kind {
            Kind::mem_vsib32x | Kind::mem_vsib64x => Some(Register::XMM0),
            Kind::mem_vsib32y | Kind::mem_vsib64y => Some(Register::YMM0),
            Kind::mem_vsib32z | Kind::mem_vsib64z => Some(Register::ZMM0),
            _ => None,
        };
        let narrow = self.bits == 32 || self.random.chance(8);
        let (first, count) = if narrow { (Register::EAX, 0) } else { (Register::RAX, 0) };
        let count = count + if self.bits == 32 { 8 } else { 16 };
        let base = first + self.random.below(count) as u32;
        let mut index = match vector {
            Some(lanes) => lanes + self.random.below(count) as u32,
            None => first + self.random.below(count) as u32,
        };
        if matches!(index, Register::ESP | Register::RSP) {
            index = Register::None;
        }
        let wanted = self.random.below(10);
        let needs_base = kind == Kind::mem_mib || kind == Kind::sibmem;
        let memory = match wanted {
            0 if vector.is_none() && !needs_base => self.absolute(),
            1..=5 if vector.is_none() => MemoryOperand::with_base_displ_size(base, 0, 0),
            _ => MemoryOperand::with_base_index(base, index),
        };
        self.set_memory(memory);
    }

    /// RIP-relative, or 32-bit absolute.
    fn absolute(&mut self) -> MemoryOperand {
        let target = target(self.random);
        if self.bits == 64 && self.random.chance(60) {
            MemoryOperand::with_base_displ_size(Register::RIP, target as i64, 8)
        } else {
            MemoryOperand::with_displ(target, 4)
        }
    }

    fn set_memory(&mut self, memory: MemoryOperand) {
        let fixed = memory.base == Register::None || memory.base == Register::RIP;
        let (displacement, size) = match self.random.below(3) {
            _ if fixed => (memory.displacement, memory.displ_size),
            0 => (0, 0),
            1 => (i64::from(self.random.bits() as i8), 1),
            _ => (i64::from(self.random.bits() as i32), 4),
        };
        let size = if size == 4 && self.bits == 64 { 8 } else { size };
        let instruction = &mut self.instruction;
        instruction.set_memory_base(memory.base);
        instruction.set_memory_index(memory.index);
        instruction.set_memory_index_scale(1 << self.random.below(4));
        if memory.index == Register::None {
            instruction.set_memory_index_scale(1);
        }
        instruction.set_memory_displ_size(size);
        let displacement =
            if self.bits == 32 { u64::from(displacement as u32) } else { displacement as u64 };
        instruction.set_memory_displacement64(displacement);
        if self.random.chance(8) {
            let segment = self.random.pick(&[Register::FS, Register::GS, Register::DS]);
            if self.bits == 64 || segment == Register::DS {
                instruction.set_segment_prefix(segment);
            }
        }
    }

    fn immediate(&mut self, operand: u32, kind: Kind) -> Option<()> {
        let second = (0..operand).any(|other| self.instruction.op_kind(other) == OpKind::Immediate8
            || self.instruction.op_kind(other) == OpKind::Immediate16);
        let value = self.random.integer();
        let (op_kind, value) = match kind {
            Kind::imm4_m2z => (OpKind::Immediate8, value & 3),
            Kind::imm8 if second => (OpKind::Immediate8_2nd, value & 0xff),
            Kind::imm8 => (OpKind::Immediate8, value & 0xff),
            Kind::imm8_const_1 => (OpKind::Immediate8, 1),
            Kind::imm8sex16 => (OpKind::Immediate8to16, value as i8 as u64),
            Kind::imm8sex32 => (OpKind::Immediate8to32, value as i8 as u64),
            Kind::imm8sex64 => (OpKind::Immediate8to64, value as i8 as u64),
            Kind::imm16 => (OpKind::Immediate16, value & 0xffff),
            Kind::imm32 => (OpKind::Immediate32, value & 0xffff_ffff),
            Kind::imm32sex64 => (OpKind::Immediate32to64, value as i32 as u64),
            Kind::imm64 => (OpKind::Immediate64, value),
            _ => return None,
        };
        self.instruction.set_op_kind(operand, op_kind);
        match op_kind {
            OpKind::Immediate8 => self.instruction.set_immediate8(value as u8),
            OpKind::Immediate8_2nd => self.instruction.set_immediate8_2nd(value as u8),
            OpKind::Immediate16 => self.instruction.set_immediate16(value as u16),
            OpKind::Immediate32 => self.instruction.set_immediate32(value as u32),
            OpKind::Immediate8to16 => self.instruction.set_immediate8to16(value as i16),
            OpKind::Immediate8to32 => self.instruction.set_immediate8to32(value as i32),
            OpKind::Immediate8to64 => self.instruction.set_immediate8to64(value as i64),
            OpKind::Immediate32to64 => self.instruction.set_immediate32to64(value as i64),
            _ => self.instruction.set_immediate64(value),
        }
        Some(())
    }

    /// Branches go forward inside the slot, where `int3` waits at every byte.
    fn branch(&mut self, operand: u32, kind: Kind) -> Option<()> {
        let target = self.rip + 20 + self.random.below(80);
        let op_kind = match kind {
            Kind::br16_1 | Kind::br16_2 | Kind::xbegin_2 if self.bits == 32 => OpKind::NearBranch32,
            Kind::xbegin_2 => OpKind::NearBranch64,
            Kind::br16_1 | Kind::br16_2 | Kind::brdisp_2 => OpKind::NearBranch16,
            Kind::br32_1 | Kind::br32_4 | Kind::brdisp_4 => OpKind::NearBranch32,
            Kind::xbegin_4 if self.bits == 32 => OpKind::NearBranch32,
            Kind::br64_1 | Kind::br64_4 | Kind::xbegin_4 => OpKind::NearBranch64,
            Kind::farbr2_2 => OpKind::FarBranch16,
            Kind::farbr4_2 => OpKind::FarBranch32,
            _ => return None,
        };
        self.instruction.set_op_kind(operand, op_kind);
        let selector = self.random.pick(&SELECTORS);
        match op_kind {
            OpKind::NearBranch16 => self.instruction.set_near_branch16(target as u16),
            OpKind::NearBranch32 => self.instruction.set_near_branch32(target as u32),
            OpKind::NearBranch64 => self.instruction.set_near_branch64(target),
            OpKind::FarBranch16 => {
                self.instruction.set_far_branch16(target as u16);
                self.instruction.set_far_branch_selector(selector);
            }
            _ => {
                self.instruction.set_far_branch32(target as u32);
                self.instruction.set_far_branch_selector(selector);
            }
        }
        Some(())
    }

    /// Operands of string instructions and the like.
    fn implied(&mut self, operand: u32, kind: Kind) -> Option<()> {
        let narrow = self.bits == 32 || self.random.chance(10);
        let op_kind = match (kind, narrow) {
            (Kind::seg_rSI, true) => OpKind::MemorySegESI,
            (Kind::seg_rSI, false) => OpKind::MemorySegRSI,
            (Kind::es_rDI, true) => OpKind::MemoryESEDI,
            (Kind::es_rDI, false) => OpKind::MemoryESRDI,
            (Kind::seg_rDI, true) => OpKind::MemorySegEDI,
            (Kind::seg_rDI, false) => OpKind::MemorySegRDI,
            (Kind::mem_offs, _) => {
                let target = target(self.random);
                let size = if self.bits == 32 || narrow { 4 } else { 8 };
                self.instruction.set_memory_displacement64(target);
                self.instruction.set_memory_displ_size(size);
                OpKind::Memory
            }
            (Kind::seg_rBX_al, narrow) => {
                let base = if narrow { Register::EBX } else { Register::RBX };
                self.instruction.set_memory_base(base);
                self.instruction.set_memory_index(Register::AL);
                OpKind::Memory
            }
            _ => return None,
        };
        if operand > 0 && self.instruction.op_kind(0) != OpKind::Register {
            // Both operands of a string instruction have the same address size.
            let first = self.instruction.op_kind(0);
            let wide = matches!(
                first,
                OpKind::MemorySegRSI | OpKind::MemorySegRDI | OpKind::MemoryESRDI
            );
            self.instruction.set_op_kind(operand, match kind {
                Kind::seg_rSI if wide => OpKind::MemorySegRSI,
                Kind::seg_rSI => OpKind::MemorySegESI,
                Kind::es_rDI if wide => OpKind::MemoryESRDI,
                Kind::es_rDI => OpKind::MemoryESEDI,
                _ => op_kind,
            });
        } else {
            self.instruction.set_op_kind(operand, op_kind);
        }
        Some(())
    }

    /// Masks, broadcast, rounding; `lock` and `rep`.
    fn decorate(&mut self) {
        let form = self.instruction.op_code();
        let instruction = &mut self.instruction;
        let random = &mut *self.random;
        if form.can_use_op_mask_register()
            && (form.require_op_mask_register() || random.chance(60))
        {
            instruction.set_op_mask(Register::K1 + random.below(7) as u32);
            let to_memory = instruction.op0_kind() == OpKind::Memory;
            if form.can_use_zeroing_masking() && !to_memory && random.chance(50) {
                instruction.set_zeroing_masking(true);
            }
        }
        if self.memory {
            if form.can_broadcast() && random.chance(40) {
                instruction.set_is_broadcast(true);
            }
            if form.can_use_lock_prefix() && random.chance(50) {
                instruction.set_has_lock_prefix(true);
            }
        } else if form.can_use_rounding_control() && random.chance(50) {
            instruction.set_rounding_control(random.pick(&[
                RoundingControl::RoundToNearest,
                RoundingControl::RoundDown,
                RoundingControl::RoundUp,
                RoundingControl::RoundTowardZero,
            ]));
        } else if form.can_suppress_all_exceptions() && random.chance(50) {
            instruction.set_suppress_all_exceptions(true);
        }
        if form.can_use_rep_prefix() && random.chance(60) {
            instruction.set_has_rep_prefix(true);
        } else if form.can_use_repne_prefix() && random.chance(60) {
            instruction.set_has_repne_prefix(true);
        }
    }
}

/// Selectors that mean the same natively and in the guest.
pub const SELECTORS: [u16; 9] = [0, 3, 0x08, 0x10, 0x18, 0x23, 0x2b, 0x33, 0x8003];

/// An address for a memory operand: in the middle of a page, misaligned, astride, or forbidden.
pub fn target(random: &mut Random) -> u64 {
    let edge = |page: usize, random: &mut Random| layout::page(page) - random.below(64);
    match random.below(100) {
        0..50 => layout::page(random.pick(&[1, 2, 5])) + random.below(60) * 64 + 64,
        50..72 => layout::page(random.pick(&[1, 2, 5])) + 64 + random.below(3800),
        72..82 => edge(2, random),
        82..86 => edge(3, random),
        86..88 => edge(1, random),
        88..92 => layout::page(random.pick(&[4, 6])) + random.below(4000),
        92..94 => edge(5, random),
        94..96 => edge(6, random),
        96..98 => layout::page(2) + random.below(4) * 8,
        _ => DATA + random.below(4000),
    }
}

fn is_memory(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::mem
            | Kind::mem_mpx
            | Kind::mem_mib
            | Kind::sibmem
            | Kind::mem_vsib32x
            | Kind::mem_vsib64x
            | Kind::mem_vsib32y
            | Kind::mem_vsib64y
            | Kind::mem_vsib32z
            | Kind::mem_vsib64z
            | Kind::r8_or_mem
            | Kind::r16_or_mem
            | Kind::r32_or_mem
            | Kind::r32_or_mem_mpx
            | Kind::r64_or_mem
            | Kind::r64_or_mem_mpx
            | Kind::mm_or_mem
            | Kind::xmm_or_mem
            | Kind::ymm_or_mem
            | Kind::zmm_or_mem
            | Kind::bnd_or_mem_mpx
            | Kind::k_or_mem
    )
}

fn fixed(kind: Kind) -> Option<Register> {
    Some(match kind {
        Kind::es => Register::ES,
        Kind::cs => Register::CS,
        Kind::ss => Register::SS,
        Kind::ds => Register::DS,
        Kind::fs => Register::FS,
        Kind::gs => Register::GS,
        Kind::al => Register::AL,
        Kind::cl => Register::CL,
        Kind::ax => Register::AX,
        Kind::dx => Register::DX,
        Kind::eax => Register::EAX,
        Kind::rax => Register::RAX,
        Kind::st0 => Register::ST0,
        _ => return None,
    })
}

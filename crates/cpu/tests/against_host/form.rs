//! Instructions of every form: operands are made up from what iced's tables say of the form.

use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, Instruction, MemorySize, Mnemonic, OpCodeInfo,
    OpCodeOperandKind, OpKind, Register, RoundingControl,
};

use super::case::Case;
use super::conditions;
use super::layout;
use super::random::Random;

/// Which registers an instruction may use, and which it must leave as they are.
#[derive(Clone, Copy)]
pub struct Freedom {
    /// Registers that may be the base of a memory operand, by number; their values are `case.gpr`.
    pub bases: u16,
    /// Whether the values of registers may still be chosen.
    pub values: bool,
    /// Whether memory operands cross a page.
    pub crossing: bool,
}

/// What one form is made of.
pub struct Maker<'a> {
    pub random: &'a mut Random,
    pub case: &'a mut Case,
    pub freedom: Freedom,
    /// Where branches go.
    pub target: u64,
}

/// How this host's vendor decodes what the vendors decode differently.
pub fn decoder_options() -> u32 {
    if host_is_amd() { DecoderOptions::AMD } else { DecoderOptions::NONE }
}

/// Whether this is a processor of AMD's, or one that is built after its manuals.
pub fn host_is_amd() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0).ebx;
    // "Auth" and "Hygo".
    matches!(vendor, 0x6874_7541 | 0x6f67_7948)
}

/// The bytes of `instruction` at `at`, if they mean what was meant.
pub fn encode(instruction: &Instruction, bits: u32, at: u64) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(bits);
    encoder.encode(instruction, at).ok()?;
    let bytes = encoder.take_buffer();
    let mut decoder = Decoder::with_ip(bits, &bytes, at, decoder_options());
    let back = decoder.decode();
    (back.code() == instruction.code() && back.len() == bytes.len()).then_some(bytes)
}

impl Maker<'_> {
    /// An instruction of the form `code`; it may turn out not to be encodable.
    pub fn make(&mut self, code: Code) -> Instruction {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        let info = code.op_code();
        for operand in 0..info.op_count() {
            self.operand(&mut instruction, operand, info);
        }
        self.decorate(&mut instruction, info);
        self.choose_selector(&instruction);
        instruction
    }

    /// Instructions that look at a descriptor: mostly one that is there.
    fn choose_selector(&mut self, instruction: &Instruction) {
        use Mnemonic::{Lar, Lsl, Verr, Verw};
        let source = match instruction.mnemonic() {
            Lar | Lsl => 1,
            Verr | Verw => 0,
            _ => return,
        };
        let register = instruction.op_register(source).full_register();
        if self.freedom.values && register.is_gpr64() && !self.random.one_in(4) {
            // The limit of Linux's last segment is the number of the processor.
            let selectors = if instruction.mnemonic() == Lsl { 120 } else { 128 };
            self.case.gpr[register.number()] = self.random.below(selectors);
        }
    }

    fn decorate(&mut self, instruction: &mut Instruction, info: &OpCodeInfo) {
        let memory =
            (0..instruction.op_count()).any(|index| instruction.op_kind(index) == OpKind::Memory);
        let mask = info.can_use_op_mask_register();
        if info.require_op_mask_register() || mask && !self.random.one_in(3) {
            instruction.set_op_mask(Register::K1 + self.random.below(7) as u32);
            if info.can_use_zeroing_masking() && self.random.one_in(2) {
                let stores = instruction.op0_kind() == OpKind::Memory;
                instruction.set_zeroing_masking(!stores);
            }
        }
        if memory && info.can_broadcast() && self.random.one_in(3) {
            instruction.set_is_broadcast(true);
        }
        if !memory && info.can_use_rounding_control() && self.random.one_in(3) {
            let all = [
                RoundingControl::RoundToNearest,
                RoundingControl::RoundDown,
                RoundingControl::RoundUp,
                RoundingControl::RoundTowardZero,
            ];
            instruction.set_rounding_control(self.random.pick(&all));
        } else if !memory && info.can_suppress_all_exceptions() && self.random.one_in(3) {
            instruction.set_suppress_all_exceptions(true);
        }
        if memory && info.can_use_lock_prefix() && self.random.one_in(3) {
            instruction.set_has_lock_prefix(true);
        }
        if info.can_use_rep_prefix() && self.random.one_in(2) {
            instruction.set_has_rep_prefix(true);
        } else if info.can_use_repne_prefix() && self.random.one_in(2) {
            instruction.set_has_repne_prefix(true);
        }
        if memory && self.random.one_in(10) {
            self.segment(instruction);
        }
    }

    /// Address the same place through another segment.
    fn segment(&mut self, instruction: &mut Instruction) {
        let flat = [Register::ES, Register::CS, Register::SS, Register::DS];
        if self.case.bits == 64 && self.freedom.values && self.random.one_in(2) {
            let fs = self.random.one_in(2);
            instruction.set_segment_prefix(if fs { Register::FS } else { Register::GS });
            let base = self.random.below(0x2000) & !63;
            *(if fs { &mut self.case.fs_base } else { &mut self.case.gs_base }) = base;
        } else {
            instruction.set_segment_prefix(self.random.pick(&flat));
        }
    }

    fn operand(&mut self, instruction: &mut Instruction, operand: u32, info: &OpCodeInfo) {
        use OpCodeOperandKind as K;
        let kind = info.op_kind(operand);
        match kind {
            K::mem | K::mem_mib | K::mem_mpx | K::sibmem => self.memory(instruction, operand),
            K::r8_or_mem
            | K::r16_or_mem
            | K::r32_or_mem
            | K::r32_or_mem_mpx
            | K::r64_or_mem
            | K::r64_or_mem_mpx
            | K::mm_or_mem
            | K::xmm_or_mem
            | K::ymm_or_mem
            | K::zmm_or_mem
            | K::bnd_or_mem_mpx
            | K::k_or_mem
                if !self.random.one_in(3) =>
            {
                self.memory(instruction, operand);
            }
            K::mem_vsib32x | K::mem_vsib64x => self.scattered(instruction, operand, Register::XMM0),
            K::mem_vsib32y | K::mem_vsib64y => self.scattered(instruction, operand, Register::YMM0),
            K::mem_vsib32z | K::mem_vsib64z => self.scattered(instruction, operand, Register::ZMM0),
            K::mem_offs => {
                instruction.set_op_kind(operand, OpKind::Memory);
                let address = conditions::address(self.random, 8);
                instruction.set_memory_displacement64(address);
                instruction.set_memory_displ_size(if self.case.bits == 64 { 8 } else { 4 });
            }
            K::seg_rSI | K::es_rDI | K::seg_rDI | K::seg_rBX_al => {
                self.implied(instruction, operand, kind);
            }
            _ => self.register_or_immediate(instruction, operand, kind, info),
        }
    }

    fn implied(&mut self, instruction: &mut Instruction, operand: u32, kind: OpCodeOperandKind) {
        use OpCodeOperandKind as K;
        let wide = self.case.bits == 64 && !self.random.one_in(6);
        let (kind, register) = match (kind, wide) {
            (K::seg_rSI, true) => (OpKind::MemorySegRSI, 6),
            (K::seg_rSI, false) => (OpKind::MemorySegESI, 6),
            (K::es_rDI, true) => (OpKind::MemoryESRDI, 7),
            (K::es_rDI, false) => (OpKind::MemoryESEDI, 7),
            (K::seg_rDI, true) => (OpKind::MemorySegRDI, 7),
            (K::seg_rDI, false) => (OpKind::MemorySegEDI, 7),
            _ => {
                let base = if wide { Register::RBX } else { Register::EBX };
                instruction.set_memory_base(base);
                instruction.set_memory_index(Register::AL);
                (OpKind::Memory, 3)
            }
        };
        instruction.set_op_kind(operand, kind);
        if self.freedom.values && !self.random.one_in(8) {
            self.case.gpr[register] = conditions::address(self.random, 64);
            self.case.gpr[1] = self.random.below(24);
        }
    }

    /// `[base + index * scale + displacement]`, or less.
    fn memory(&mut self, instruction: &mut Instruction, operand: u32) {
        instruction.set_op_kind(operand, OpKind::Memory);
        let bytes = instruction.memory_size().size().max(1) as u64;
        let mut address = conditions::address(self.random, bytes);
        if instruction.memory_size() == MemorySize::Unknown || bytes > 64 {
            // XSAVE images and their like: a place where one lies.
            address = if self.random.one_in(3) { address & !63 } else { layout::page(1) };
        } else if bytes >= 16 && !self.random.one_in(3) {
            address &= !(bytes - 1);
        }
        if self.freedom.crossing && (2..=64).contains(&bytes) {
            address = self.across(bytes);
        }
        let wide = self.case.bits == 64;
        if wide && self.random.one_in(10) {
            instruction.set_memory_base(Register::RIP);
            instruction.set_memory_displacement64(address);
            instruction.set_memory_displ_size(8);
            return;
        }
        let first = if wide && !self.random.one_in(8) { Register::RAX } else { Register::EAX };
        let mut offset = 0;
        if self.freedom.values && self.random.one_in(3) {
            let index = self.number_of_register(!(1 << 4));
            let scale = self.random.pick(&[1, 2, 4, 8]);
            let value = self.random.below(64);
            self.case.gpr[index] = value;
            instruction.set_memory_index(first + index as u32);
            instruction.set_memory_index_scale(scale);
            offset = value * u64::from(scale);
        }
        if !self.random.one_in(12) {
            self.base(instruction, first, &mut offset, address);
        }
        let displacement = address.wrapping_sub(offset);
        let narrow = displacement as i64 >= -128 && (displacement as i64) < 128;
        instruction.set_memory_displacement64(if first == Register::EAX {
            u64::from(displacement as u32)
        } else {
            displacement
        });
        let full = if first == Register::RAX { 8 } else { 4 };
        instruction.set_memory_displ_size(match displacement {
            0 if offset != 0 => 0,
            _ if narrow => 1,
            _ => full,
        });
    }

    /// Where an operand of so many bytes crosses a page, mostly between two that may be written.
    fn across(&mut self, bytes: u64) -> u64 {
        let any = 1 + self.random.below(layout::PAGES.len() as u64 - 1) as usize;
        let boundary = if self.random.one_in(3) { any } else { 2 };
        layout::page(boundary) - 1 - self.random.below(bytes - 1)
    }

    fn base(&mut self, instr: &mut Instruction, first: Register, offset: &mut u64, address: u64) {
        let base = self.number_of_register(self.freedom.bases);
        let register = first + base as u32;
        if self.freedom.values && base != 4 && register != instr.memory_index() {
            let distance = self.random.pick(&[0, 0, 8, 64, 0x1234, 0xffff_ffff_ffff_ff90]);
            self.case.gpr[base] = address.wrapping_sub(*offset).wrapping_sub(distance);
        }
        instr.set_memory_base(register);
        *offset = offset.wrapping_add(self.case.gpr[base]);
    }

    fn number_of_register(&mut self, allowed: u16) -> usize {
        let count = if self.case.bits == 64 { 16 } else { 8 };
        loop {
            let number = self.random.below(count) as usize;
            if allowed >> number & 1 != 0 {
                return number;
            }
        }
    }

    fn scattered(&mut self, instruction: &mut Instruction, operand: u32, first: Register) {
        instruction.set_op_kind(operand, OpKind::Memory);
        let evex = instruction.code().op_code().can_use_op_mask_register();
        let count = if self.case.bits == 32 {
            8
        } else if evex {
            32
        } else {
            16
        };
        let index = self.random.below(count) as u32;
        instruction.set_memory_index(first + index);
        instruction.set_memory_index_scale(self.random.pick(&[1, 2, 4, 8]));
        let base = self.number_of_register(self.freedom.bases);
        let wide = self.case.bits == 64;
        let all = if wide { Register::RAX } else { Register::EAX };
        instruction.set_memory_base(all + base as u32);
        if self.freedom.values {
            if base != 4 {
                let page = self.random.pick(&[1, 1, 1, 2, 4]);
                self.case.gpr[base] = layout::page(page) + 1024 + self.random.below(8);
            }
            // Small indices, of 32 bits or of 64: the upper half of a quadword stays 0 if even.
            for quarter in 0..2 {
                let at = 160 + index as usize % 16 * 16 + quarter * 8;
                let low = self.random.below(100);
                let high = if self.random.one_in(2) { self.random.below(100) << 32 } else { 0 };
                self.case.xsave[at..at + 8].copy_from_slice(&(low | high).to_le_bytes());
            }
        }
    }

    fn register_or_immediate(
        &mut self,
        instruction: &mut Instruction,
        operand: u32,
        kind: OpCodeOperandKind,
        info: &OpCodeInfo,
    ) {
        if let Some(register) = self.register(kind, info) {
            instruction.set_op_kind(operand, OpKind::Register);
            instruction.set_op_register(operand, register);
            return;
        }
        use OpCodeOperandKind as K;
        let value = match self.random.below(3) {
            0 => self.random.below(70),
            1 => conditions::number(self.random),
            _ => self.random.next(),
        };
        let op = match kind {
            K::imm8 if (0..operand).any(|other| is_immediate(instruction.op_kind(other))) => {
                instruction.set_immediate8_2nd(value as u8 & 31);
                OpKind::Immediate8_2nd
            }
            K::imm8 | K::imm8_const_1 | K::imm4_m2z => {
                let value = if kind == K::imm8_const_1 { 1 } else { value as u8 };
                instruction.set_immediate8(if kind == K::imm4_m2z { value & 15 } else { value });
                OpKind::Immediate8
            }
            K::imm8sex16 => {
                instruction.set_immediate8to16(i16::from(value as i8));
                OpKind::Immediate8to16
            }
            K::imm8sex32 => {
                instruction.set_immediate8to32(i32::from(value as i8));
                OpKind::Immediate8to32
            }
            K::imm8sex64 => {
                instruction.set_immediate8to64(i64::from(value as i8));
                OpKind::Immediate8to64
            }
            K::imm16 => {
                instruction.set_immediate16(value as u16);
                OpKind::Immediate16
            }
            K::imm32 => {
                instruction.set_immediate32(value as u32);
                OpKind::Immediate32
            }
            K::imm32sex64 => {
                instruction.set_immediate32to64(i64::from(value as i32));
                OpKind::Immediate32to64
            }
            K::imm64 => {
                instruction.set_immediate64(value);
                OpKind::Immediate64
            }
            _ => self.branch(instruction, kind),
        };
        instruction.set_op_kind(operand, op);
    }

    fn branch(&mut self, instruction: &mut Instruction, kind: OpCodeOperandKind) -> OpKind {
        use OpCodeOperandKind as K;
        match kind {
            K::br16_1 | K::br16_2 | K::xbegin_2 | K::brdisp_2 => {
                instruction.set_near_branch16(self.target as u16);
                OpKind::NearBranch16
            }
            K::br32_1 | K::br32_4 | K::brdisp_4 => {
                instruction.set_near_branch32(self.target as u32);
                OpKind::NearBranch32
            }
            K::xbegin_4 if self.case.bits == 32 => {
                instruction.set_near_branch32(self.target as u32);
                OpKind::NearBranch32
            }
            K::farbr2_2 => {
                instruction.set_far_branch16(self.target as u16);
                instruction.set_far_branch_selector(self.random.next() as u16 | 0x100);
                OpKind::FarBranch16
            }
            K::farbr4_2 => {
                instruction.set_far_branch32(self.target as u32);
                let any = self.random.next() as u16 | 0x100;
                let selectors = [layout::USER_CODE_32, layout::USER_CODE_64, any];
                instruction.set_far_branch_selector(self.random.pick(&selectors));
                OpKind::FarBranch32
            }
            _ => {
                instruction.set_near_branch64(self.target);
                OpKind::NearBranch64
            }
        }
    }

    fn register(&mut self, kind: OpCodeOperandKind, info: &OpCodeInfo) -> Option<Register> {
        use OpCodeOperandKind as K;
        let (first, count) = match kind {
            K::r8_or_mem | K::r8_reg | K::r8_opcode => (Register::AL, 20),
            K::r16_or_mem | K::r16_reg | K::r16_reg_mem | K::r16_rm | K::r16_opcode => {
                (Register::AX, 16)
            }
            K::r32_or_mem
            | K::r32_or_mem_mpx
            | K::r32_reg
            | K::r32_reg_mem
            | K::r32_rm
            | K::r32_opcode
            | K::r32_vvvv => (Register::EAX, 16),
            K::r64_or_mem
            | K::r64_or_mem_mpx
            | K::r64_reg
            | K::r64_reg_mem
            | K::r64_rm
            | K::r64_opcode
            | K::r64_vvvv => (Register::RAX, 16),
            K::mm_or_mem | K::mm_reg | K::mm_rm => (Register::MM0, 8),
            K::xmm_or_mem | K::xmm_reg | K::xmm_rm | K::xmm_vvvv | K::xmm_is4 | K::xmm_is5 => {
                (Register::XMM0, 32)
            }
            K::xmmp3_vvvv => (Register::XMM0 + 4 * self.random.below(8) as u32, 1),
            K::zmmp3_vvvv => (Register::ZMM0 + 4 * self.random.below(8) as u32, 1),
            K::ymm_or_mem | K::ymm_reg | K::ymm_rm | K::ymm_vvvv | K::ymm_is4 | K::ymm_is5 => {
                (Register::YMM0, 32)
            }
            K::zmm_or_mem | K::zmm_reg | K::zmm_rm | K::zmm_vvvv => (Register::ZMM0, 32),
            K::k_or_mem | K::k_reg | K::k_rm | K::k_vvvv => (Register::K0, 8),
            K::kp1_reg => (Register::K0 + 2 * self.random.below(4) as u32, 1),
            K::bnd_or_mem_mpx | K::bnd_reg => (Register::BND0, 4),
            K::tmm_reg | K::tmm_rm | K::tmm_vvvv => (Register::TMM0, 8),
            K::seg_reg => (Register::ES, 6),
            K::cr_reg => (Register::CR0, 16),
            K::dr_reg => (Register::DR0, 16),
            K::tr_reg => (Register::TR0, 8),
            K::sti_opcode => (Register::ST0, 8),
            K::st0 => (Register::ST0, 1),
            K::es | K::cs | K::ss | K::ds | K::fs | K::gs => {
                (Register::ES + (kind as u32 - K::es as u32), 1)
            }
            K::al => (Register::AL, 1),
            K::cl => (Register::CL, 1),
            K::ax => (Register::AX, 1),
            K::dx => (Register::DX, 1),
            K::eax => (Register::EAX, 1),
            K::rax => (Register::RAX, 1),
            _ => return None,
        };
        let extended = self.case.bits == 64;
        let count = match count {
            20 if !extended => 8,
            32 if !extended => 8,
            32 if !info.can_use_op_mask_register() && self.random.below(8) != 0 => 16,
            16 if !extended => 8,
            count => count,
        };
        Some(first + self.random.below(count) as u32)
    }
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(kind, OpKind::Immediate8 | OpKind::Immediate16 | OpKind::Immediate32)
}

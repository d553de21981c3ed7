//! The emitter: named operations over iced's encoder, each of which appends one or a few host instructions.

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};

use super::host_code::HostCode;

/// Host code under construction, and where it will live.
pub(crate) struct Emitter {
    encoder: Encoder,
    bytes: Vec<u8>,
    base: HostCode,
}

/// The general-purpose register with an encoding number.
pub(crate) fn gpr64(number: usize) -> Register {
    const ALL: [Register; 16] = [
        Register::RAX,
        Register::RCX,
        Register::RDX,
        Register::RBX,
        Register::RSP,
        Register::RBP,
        Register::RSI,
        Register::RDI,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    ALL[number]
}

/// The 32-bit half of a 64-bit general-purpose register.
pub(crate) fn gpr32(register: Register) -> Register {
    const ALL: [Register; 16] = [
        Register::EAX,
        Register::ECX,
        Register::EDX,
        Register::EBX,
        Register::ESP,
        Register::EBP,
        Register::ESI,
        Register::EDI,
        Register::R8D,
        Register::R9D,
        Register::R10D,
        Register::R11D,
        Register::R12D,
        Register::R13D,
        Register::R14D,
        Register::R15D,
    ];
    ALL[register.full_register().number()]
}

/// The low word of a 64-bit general-purpose register.
fn gpr16(register: Register) -> Register {
    const ALL: [Register; 16] = [
        Register::AX,
        Register::CX,
        Register::DX,
        Register::BX,
        Register::SP,
        Register::BP,
        Register::SI,
        Register::DI,
        Register::R8W,
        Register::R9W,
        Register::R10W,
        Register::R11W,
        Register::R12W,
        Register::R13W,
        Register::R14W,
        Register::R15W,
    ];
    ALL[register.number()]
}

/// The low byte of a 64-bit general-purpose register.
pub(crate) fn gpr8(register: Register) -> Register {
    const ALL: [Register; 16] = [
        Register::AL,
        Register::CL,
        Register::DL,
        Register::BL,
        Register::SPL,
        Register::BPL,
        Register::SIL,
        Register::DIL,
        Register::R8L,
        Register::R9L,
        Register::R10L,
        Register::R11L,
        Register::R12L,
        Register::R13L,
        Register::R14L,
        Register::R15L,
    ];
    ALL[register.number()]
}

/// `fs:[offset]`: a field of the context.
pub(crate) fn field(offset: i32) -> MemoryOperand {
    MemoryOperand::new(Register::None, Register::None, 1, i64::from(offset), 8, false, Register::FS)
}

/// `gs:[base + displacement]`, `gs:[index*8 + displacement]`: a part of the active `SpaceTlb`.
pub(crate) fn in_tlb(base: Register, index: Register, displacement: i32) -> MemoryOperand {
    let scale = if index == Register::None { 1 } else { 8 };
    let size = if base == Register::None { 8 } else { 1 };
    MemoryOperand::new(base, index, scale, i64::from(displacement), size, false, Register::GS)
}

/// `[base + index + displacement]`.
pub(crate) fn at(base: Register, index: Register, displacement: i32) -> MemoryOperand {
    // Any size but 0 lets the encoder choose between 8 and 32 bits.
    let size = u32::from(displacement != 0);
    MemoryOperand::new(base, index, 1, i64::from(displacement), size, false, Register::None)
}

/// `[base + index*scale + displacement]`.
pub(crate) fn scaled(
    base: Register,
    index: Register,
    scale: u32,
    displacement: i32,
) -> MemoryOperand {
    MemoryOperand::new(base, index, scale, i64::from(displacement), 1, false, Register::None)
}

impl Emitter {
    /// Start at host address `base`.
    pub(crate) fn new(base: HostCode) -> Self {
        Self { encoder: Encoder::new(64), bytes: Vec::with_capacity(1024), base }
    }

    /// Start again at another address, keeping the buffers.
    pub(crate) fn restart(&mut self, base: HostCode) {
        self.bytes.clear();
        self.base = base;
    }

    /// Host address of the next byte.
    pub(crate) fn here(&self) -> HostCode {
        self.base + self.bytes.len() as u64
    }

    /// The code so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Append bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Append one instruction; `false` (and nothing appended) when it has no encoding.
    pub(crate) fn try_instruction(&mut self, instruction: &Instruction) -> bool {
        let here = self.here();
        let done = self.encoder.encode(instruction, here.0).is_ok();
        let mut buffer = self.encoder.take_buffer();
        if done {
            self.bytes.extend_from_slice(&buffer);
        }
        buffer.clear();
        self.encoder.set_buffer(buffer);
        done
    }

    /// Append one instruction of ours.
    pub(crate) fn instruction(&mut self, instruction: &Instruction) {
        assert!(self.try_instruction(instruction), "cannot encode {instruction:?}");
    }

    fn with_memory(&mut self, code: Code, register: Register, memory: MemoryOperand) {
        let built = Instruction::with2(code, register, memory);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `mov register, memory` (64 bits).
    pub(crate) fn load(&mut self, register: Register, memory: MemoryOperand) {
        self.with_memory(Code::Mov_r64_rm64, register, memory);
    }

    /// `mov memory, register` (64 bits).
    pub(crate) fn store(&mut self, memory: MemoryOperand, register: Register) {
        let built = Instruction::with2(Code::Mov_rm64_r64, memory, register);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `mov register, register` (64 bits).
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        let built = Instruction::with2(Code::Mov_r64_rm64, to, from);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `lea register, [memory]` (64 bits).
    pub(crate) fn lea(&mut self, register: Register, memory: MemoryOperand) {
        self.with_memory(Code::Lea_r64_m, register, memory);
    }

    /// `lea register, memory`, of which the lower 32 bits are taken.
    pub(crate) fn lea32(&mut self, register: Register, memory: MemoryOperand) {
        self.with_memory(Code::Lea_r32_m, gpr32(register), memory);
    }

    /// A constant into a register, in the shortest form that leaves the flags alone.
    pub(crate) fn constant(&mut self, register: Register, value: u64) {
        let built = if u32::try_from(value).is_ok() {
            Instruction::with2(Code::Mov_r32_imm32, gpr32(register), value as u32)
        } else if i64::from(value as i32) == value as i64 {
            Instruction::with2(Code::Mov_rm64_imm32, register, value as i32)
        } else {
            Instruction::with2(Code::Mov_r64_imm64, register, value)
        };
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `mov register, register` (32 bits, upper half cleared).
    pub(crate) fn copy32(&mut self, to: Register, from: Register) {
        let built = Instruction::with2(Code::Mov_r32_rm32, to, from);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `mov register, memory` (32 bits, upper half cleared).
    pub(crate) fn load32(&mut self, to: Register, memory: MemoryOperand) {
        self.with_memory(Code::Mov_r32_rm32, to, memory);
    }

    /// `movzx register, byte memory`.
    pub(crate) fn load_byte(&mut self, to: Register, memory: MemoryOperand) {
        self.with_memory(Code::Movzx_r32_rm8, gpr32(to), memory);
    }

    /// `movzx register, low byte of register`.
    pub(crate) fn zero_extend_byte(&mut self, to: Register, from: Register) {
        let built = Instruction::with2(Code::Movzx_r32_rm8, gpr32(to), gpr8(from));
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `lea register, [rip + ...]` of a place in this piece of code that is not known yet; the
    /// address of the displacement.
    pub(crate) fn address_of_code(&mut self, register: Register) -> HostCode {
        let number = register.number() as u8;
        self.raw(&[0x48 | (number >> 3) << 2, 0x8d, 0x05 | (number & 7) << 3, 0, 0, 0, 0]);
        self.here() - 4
    }

    /// `mov byte memory, register`.
    pub(crate) fn store_byte(&mut self, memory: MemoryOperand, from: Register) {
        let built = Instruction::with2(Code::Mov_rm8_r8, memory, gpr8(from));
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `mov register, word memory`, for a 16-bit register.
    pub(crate) fn load_low_word(&mut self, to: Register, memory: MemoryOperand) {
        self.with_memory(Code::Mov_r16_rm16, to, memory);
    }

    /// `mov word memory, register`.
    pub(crate) fn store_word(&mut self, memory: MemoryOperand, from: Register) {
        let built = Instruction::with2(Code::Mov_rm16_r16, memory, gpr16(from));
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `mov memory, register` of 1, 2, 4 or 8 bytes.
    pub(crate) fn store_sized(&mut self, memory: MemoryOperand, from: Register, size: u32) {
        match size {
            1 => self.store_byte(memory, from),
            2 => self.store_word(memory, from),
            4 => {
                let built = Instruction::with2(Code::Mov_rm32_r32, memory, gpr32(from));
                self.instruction(&built.expect("operands fit the code"));
            }
            _ => self.store(memory, from),
        }
    }

    /// 1, 2, 4 or 8 bytes into a register, upper part cleared.
    pub(crate) fn load_sized(&mut self, to: Register, memory: MemoryOperand, size: u32) {
        match size {
            1 => self.load_byte(to, memory),
            2 => self.load_word(to, memory),
            4 => self.load32(gpr32(to), memory),
            _ => self.load(to, memory),
        }
    }

    /// `movsxd to, from` (32 to 64 bits).
    pub(crate) fn sign_extend32(&mut self, to: Register, from: Register) {
        let built = Instruction::with2(Code::Movsxd_r64_rm32, to, from);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `shlx to, from, count`.
    pub(crate) fn shift_left(&mut self, to: Register, from: Register, count: Register) {
        let built = Instruction::with3(Code::VEX_Shlx_r64_rm64_r64, to, from, count);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `sarx to, from, count`.
    pub(crate) fn shift_right_arithmetic(&mut self, to: Register, from: Register, count: Register) {
        let built = Instruction::with3(Code::VEX_Sarx_r64_rm64_r64, to, from, count);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `not register`, flags untouched.
    pub(crate) fn complement(&mut self, register: Register) {
        let built = Instruction::with1(Code::Not_rm64, register);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `sum -= term`, flags untouched; `term` is lost.
    pub(crate) fn negate_into_sum(&mut self, sum: Register, term: Register) {
        self.complement(term);
        self.lea(sum, at(sum, term, 1));
    }

    /// `movzx register, word memory`.
    pub(crate) fn load_word(&mut self, to: Register, memory: MemoryOperand) {
        self.with_memory(Code::Movzx_r32_rm16, gpr32(to), memory);
    }

    /// `wrgsbase register`.
    pub(crate) fn set_gs_base(&mut self, from: Register) {
        let built = Instruction::with1(Code::Wrgsbase_r64, from);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `mov dword fs:[offset], value`.
    pub(crate) fn set_field32(&mut self, offset: i32, value: u32) {
        let built = Instruction::with2(Code::Mov_rm32_imm32, field(offset), value);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `mov byte fs:[offset], value`.
    pub(crate) fn set_field8(&mut self, offset: i32, value: u8) {
        let built = Instruction::with2(Code::Mov_rm8_imm8, field(offset), u32::from(value));
        self.instruction(&built.expect("operands fit the code"));
    }

    /// A 64-bit constant into a field, by way of no register.
    pub(crate) fn set_field64(&mut self, offset: i32, value: u64) {
        if i64::from(value as i32) == value as i64 {
            let built = Instruction::with2(Code::Mov_rm64_imm32, field(offset), value as i32);
            self.instruction(&built.expect("operands fit the code"));
        } else {
            self.set_field32(offset, value as u32);
            self.set_field32(offset + 4, (value >> 32) as u32);
        }
    }

    /// `pext to, from, fs:[mask]`.
    pub(crate) fn extract(&mut self, to: Register, from: Register, mask: i32) {
        let built = Instruction::with3(Code::VEX_Pext_r64_r64_rm64, to, from, field(mask));
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `pext to, from, mask`.
    pub(crate) fn extract_by(&mut self, to: Register, from: Register, mask: Register) {
        let built = Instruction::with3(Code::VEX_Pext_r64_r64_rm64, to, from, mask);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `pdep to, from, fs:[mask]`.
    pub(crate) fn deposit(&mut self, to: Register, from: Register, mask: i32) {
        let built = Instruction::with3(Code::VEX_Pdep_r64_r64_rm64, to, from, field(mask));
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `rorx to, from, count`.
    pub(crate) fn rotate(&mut self, to: Register, from: Register, count: u32) {
        let built = Instruction::with3(Code::VEX_Rorx_r64_rm64_imm8, to, from, count);
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `jmp rel32` to a host address; the address of the displacement.
    pub(crate) fn jump(&mut self, target: HostCode) -> HostCode {
        let at = self.here() + 1;
        self.raw(&[0xe9]);
        self.raw(&displacement(at, target).to_le_bytes());
        at
    }

    /// Make the displacement of a jump that follows, behind an opcode of so many bytes, lie in one
    /// aligned word of eight, so that it can be patched while it is executed.
    pub(crate) fn align_displacement(&mut self, opcode: u64) {
        self.align(opcode, 4);
    }

    /// Make five bytes that follow lie in one aligned word of eight.
    pub(crate) fn align_five(&mut self) {
        self.align(0, 5);
    }

    /// Make so many bytes, behind `before` others that follow, lie in one aligned word of eight.
    fn align(&mut self, before: u64, bytes: u64) {
        let offset = (self.here().0 + before) % 8;
        if offset + bytes > 8 {
            self.pad((8 - offset) as usize);
        }
    }

    /// Whether a host address is in this piece of code.
    pub(crate) fn contains(&self, at: HostCode) -> bool {
        (self.base..self.here()).contains(&at)
    }

    /// Up to four bytes that do nothing (SDM 2B "NOP").
    fn pad(&mut self, bytes: usize) {
        const NOPS: [&[u8]; 5] =
            [&[], &[0x90], &[0x66, 0x90], &[0x0f, 0x1f, 0x00], &[0x0f, 0x1f, 0x40, 0x00]];
        self.raw(NOPS[bytes]);
    }

    /// `jcc rel32`, to the next instruction; the address of the displacement, which can be patched while
    /// it is executed.
    pub(crate) fn jump_if(&mut self, condition: u8) -> HostCode {
        self.align_displacement(2);
        self.raw(&[0x0f, 0x80 | condition, 0, 0, 0, 0]);
        self.here() - 4
    }

    /// `jmp fs:[offset]`.
    pub(crate) fn jump_field(&mut self, offset: i32) {
        let built = Instruction::with1(Code::Jmp_rm64, field(offset));
        self.instruction(&built.expect("operands fit the code"));
    }

    /// `jrcxz` over a `jmp rel32` to a place not known yet; the address of the displacement.
    pub(crate) fn jump_unless_rcx_zero(&mut self) -> HostCode {
        self.raw(&[0xe3, 5, 0xe9, 0, 0, 0, 0]);
        self.here() - 4
    }

    /// `jrcxz` over a jump over a jump: to a place not known yet; the address of the displacement.
    pub(crate) fn jump_if_rcx_zero(&mut self) -> HostCode {
        self.raw(&[0xe3, 2, 0xeb, 5, 0xe9, 0, 0, 0, 0]);
        self.here() - 4
    }

    /// Set the displacement at host address `at`, in this piece of code, to reach `target`.
    pub(crate) fn patch(&mut self, at: HostCode, target: HostCode) {
        let offset = (at - self.base) as usize;
        self.bytes[offset..offset + 4].copy_from_slice(&displacement(at, target).to_le_bytes());
    }
}

/// The rel32 of a jump whose displacement is at `at`.
pub(crate) fn displacement(at: HostCode, target: HostCode) -> i32 {
    target.0.wrapping_sub(at.0 + 4) as i32
}

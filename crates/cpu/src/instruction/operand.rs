//! How an instruction uses its operands.

use iced_x86::{
    Code, Instruction, InstructionInfoFactory, InstructionInfoOptions, MemorySize, Mnemonic,
    OpAccess, OpKind, Register,
};

use crate::state::{CodeSize, SegmentRegister};
use crate::system::cpuid::announces_amd;

/// The segment that an instruction's memory operand uses. 64-bit mode ignores prefixes for any but
/// FS and GS (SDM 2A 2.1.1, APM 3 1.2.4), so that one for DS does not turn #SS into #GP.
pub(crate) fn segment_of(instruction: &Instruction) -> SegmentRegister {
    let segment = segment_register(instruction.memory_segment());
    if instruction.code_size() != iced_x86::CodeSize::Code64
        || matches!(segment, SegmentRegister::Fs | SegmentRegister::Gs)
    {
        return segment;
    }
    match instruction.memory_base() {
        Register::RSP | Register::ESP | Register::RBP | Register::EBP => SegmentRegister::Ss,
        _ => SegmentRegister::Ds,
    }
}

/// iced's name of a segment register as ours.
pub(crate) fn segment_register(register: Register) -> SegmentRegister {
    match register {
        Register::ES => SegmentRegister::Es,
        Register::CS => SegmentRegister::Cs,
        Register::SS => SegmentRegister::Ss,
        Register::FS => SegmentRegister::Fs,
        Register::GS => SegmentRegister::Gs,
        _ => SegmentRegister::Ds,
    }
}

/// Bits in the effective address of an instruction's memory operand.
pub(crate) fn address_bits(instruction: &Instruction, code: CodeSize) -> u32 {
    let by_register = |register: Register| match register.size() {
        2 => Some(16),
        4 => Some(32),
        8 => Some(64),
        _ => None,
    };
    let base = instruction.memory_base();
    if base == Register::RIP {
        return 64;
    }
    if base == Register::EIP {
        return 32;
    }
    if let Some(bits) = by_register(base) {
        return bits;
    }
    let index = instruction.memory_index();
    if index.is_gpr()
        && let Some(bits) = by_register(index)
    {
        return bits;
    }
    match (instruction.memory_displ_size(), code) {
        (2, _) => 16,
        (4, _) => 32,
        (8, _) | (_, CodeSize::Bits64) => 64,
        (_, CodeSize::Bits32) => 32,
        (_, CodeSize::Bits16) => 16,
    }
}

/// How an instruction uses its memory operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryUse {
    /// Bytes.
    pub(crate) size: usize,
    /// Whether the operand is read (also: written only in part or under a condition).
    pub(crate) reads: bool,
    /// Whether the operand is written.
    pub(crate) writes: bool,
}

/// How `instruction` uses its one explicit memory operand, if it has one and it is accessed.
pub(crate) fn memory_use(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> Option<MemoryUse> {
    let operand = (0..instruction.op_count())
        .find(|&operand| instruction.op_kind(operand) == OpKind::Memory)?;
    let access = frequent_access(instruction.code(), operand).unwrap_or_else(|| {
        factory
            .info_options(instruction, InstructionInfoOptions::NO_REGISTER_USAGE)
            .op_access(operand)
    });
    let (reads, writes) = match access {
        OpAccess::None | OpAccess::NoMemAccess => return None,
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write => (may_leave_unwritten(instruction.mnemonic()), true),
        OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
    };
    let size = match instruction.memory_size() {
        MemorySize::Unknown => return None,
        // AMD's processors read what they would with any other operand size.
        _ if instruction.code() == Code::Movsxd_r16_rm16 && announces_amd() => 4,
        size => size.size(),
    };
    Some(MemoryUse { size, reads, writes })
}

/// How the instructions that miss most use their memory operand: to look it up takes longer than all else that is done
/// for them.
fn frequent_access(code: Code, operand: u32) -> Option<OpAccess> {
    Some(match (code, operand) {
        (
            Code::Mov_r64_rm64
            | Code::Mov_r32_rm32
            | Code::Mov_r8_rm8
            | Code::Movzx_r32_rm8
            | Code::Movzx_r32_rm16,
            1,
        ) => OpAccess::Read,
        (
            Code::Mov_rm64_r64
            | Code::Mov_rm32_r32
            | Code::Mov_rm8_r8
            | Code::Mov_rm64_imm32
            | Code::Mov_rm32_imm32
            | Code::Mov_rm8_imm8,
            0,
        ) => OpAccess::Write,
        (Code::Xchg_rm64_r64, 0) => OpAccess::ReadWrite,
        _ => return None,
    })
}

/// x87 stores write nothing when an exception is unmasked, and raise it with the instruction after
/// (SDM 1 8.5, 8.7): what the operand held must be there to be left.
fn may_leave_unwritten(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(mnemonic, M::Fst | M::Fstp | M::Fist | M::Fistp | M::Fisttp | M::Fbstp)
}

/// `bt`, `bts`, `btr`, `btc` with a register bit offset address memory beyond their operand
/// (SDM 2A "BT"); with the offset taken into the address, what remains is the form with a constant.
pub(crate) fn immediate_bit_form(code: Code) -> Option<Code> {
    Some(match code {
        Code::Bt_rm16_r16 => Code::Bt_rm16_imm8,
        Code::Bt_rm32_r32 => Code::Bt_rm32_imm8,
        Code::Bt_rm64_r64 => Code::Bt_rm64_imm8,
        Code::Bts_rm16_r16 => Code::Bts_rm16_imm8,
        Code::Bts_rm32_r32 => Code::Bts_rm32_imm8,
        Code::Bts_rm64_r64 => Code::Bts_rm64_imm8,
        Code::Btr_rm16_r16 => Code::Btr_rm16_imm8,
        Code::Btr_rm32_r32 => Code::Btr_rm32_imm8,
        Code::Btr_rm64_r64 => Code::Btr_rm64_imm8,
        Code::Btc_rm16_r16 => Code::Btc_rm16_imm8,
        Code::Btc_rm32_r32 => Code::Btc_rm32_imm8,
        Code::Btc_rm64_r64 => Code::Btc_rm64_imm8,
        _ => return None,
    })
}

/// The form of an instruction that 64-bit mode can encode, for those of 16-bit and 32-bit code
/// whose short opcodes mean something else there (SDM 2A 2.2.1.2).
pub(crate) fn encodable(code: Code) -> Code {
    match code {
        Code::Inc_r16 => Code::Inc_rm16,
        Code::Inc_r32 => Code::Inc_rm32,
        Code::Dec_r16 => Code::Dec_rm16,
        Code::Dec_r32 => Code::Dec_rm32,
        Code::Add_rm8_imm8_82 => Code::Add_rm8_imm8,
        Code::Or_rm8_imm8_82 => Code::Or_rm8_imm8,
        Code::Adc_rm8_imm8_82 => Code::Adc_rm8_imm8,
        Code::Sbb_rm8_imm8_82 => Code::Sbb_rm8_imm8,
        Code::And_rm8_imm8_82 => Code::And_rm8_imm8,
        Code::Sub_rm8_imm8_82 => Code::Sub_rm8_imm8,
        Code::Xor_rm8_imm8_82 => Code::Xor_rm8_imm8,
        Code::Cmp_rm8_imm8_82 => Code::Cmp_rm8_imm8,
        code => without_moffs(code).unwrap_or(code),
    }
}

/// The instruction with its memory operand moved to `offset` in the context.
pub(crate) fn on_context(instruction: &Instruction, offset: i32) -> Instruction {
    let mut moved = *instruction;
    moved.set_memory_base(Register::None);
    moved.set_memory_index(Register::None);
    moved.set_memory_index_scale(1);
    moved.set_memory_displacement64(offset as u64);
    moved.set_memory_displ_size(8);
    moved.set_segment_prefix(Register::FS);
    moved
}

/// The ordinary form of a `mov` between the accumulator and an absolute address.
pub(crate) fn without_moffs(code: Code) -> Option<Code> {
    Some(match code {
        Code::Mov_AL_moffs8 => Code::Mov_r8_rm8,
        Code::Mov_AX_moffs16 => Code::Mov_r16_rm16,
        Code::Mov_EAX_moffs32 => Code::Mov_r32_rm32,
        Code::Mov_RAX_moffs64 => Code::Mov_r64_rm64,
        Code::Mov_moffs8_AL => Code::Mov_rm8_r8,
        Code::Mov_moffs16_AX => Code::Mov_rm16_r16,
        Code::Mov_moffs32_EAX => Code::Mov_rm32_r32,
        Code::Mov_moffs64_RAX => Code::Mov_rm64_r64,
        _ => return None,
    })
}

/// Whether an instruction has an explicit operand in memory.
pub(crate) fn names_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
}

/// A masked vector operand in memory: elements that the mask leaves out do not fault.
pub(crate) fn has_masked_memory(instruction: &Instruction) -> bool {
    instruction.has_op_mask() && names_memory(instruction)
}

/// Whether an instruction is atomic on memory (SDM 3A 10.1.2).
pub(crate) fn is_locked(instruction: &Instruction) -> bool {
    let exchanges = instruction.mnemonic() == Mnemonic::Xchg;
    instruction.has_lock_prefix()
        || exchanges && (0..2).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
}

/// What a string instruction does with an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StringOperation {
    Move,
    Store,
    Load,
    Compare,
    Scan,
    Input,
    Output,
}

/// What a string instruction does, and with how many bytes at once.
pub(crate) fn string_operation(code: Code) -> Option<(StringOperation, usize)> {
    Some(match code {
        Code::Movsb_m8_m8 => (StringOperation::Move, 1),
        Code::Movsw_m16_m16 => (StringOperation::Move, 2),
        Code::Movsd_m32_m32 => (StringOperation::Move, 4),
        Code::Movsq_m64_m64 => (StringOperation::Move, 8),
        Code::Stosb_m8_AL => (StringOperation::Store, 1),
        Code::Stosw_m16_AX => (StringOperation::Store, 2),
        Code::Stosd_m32_EAX => (StringOperation::Store, 4),
        Code::Stosq_m64_RAX => (StringOperation::Store, 8),
        Code::Lodsb_AL_m8 => (StringOperation::Load, 1),
        Code::Lodsw_AX_m16 => (StringOperation::Load, 2),
        Code::Lodsd_EAX_m32 => (StringOperation::Load, 4),
        Code::Lodsq_RAX_m64 => (StringOperation::Load, 8),
        Code::Cmpsb_m8_m8 => (StringOperation::Compare, 1),
        Code::Cmpsw_m16_m16 => (StringOperation::Compare, 2),
        Code::Cmpsd_m32_m32 => (StringOperation::Compare, 4),
        Code::Cmpsq_m64_m64 => (StringOperation::Compare, 8),
        Code::Scasb_AL_m8 => (StringOperation::Scan, 1),
        Code::Scasw_AX_m16 => (StringOperation::Scan, 2),
        Code::Scasd_EAX_m32 => (StringOperation::Scan, 4),
        Code::Scasq_RAX_m64 => (StringOperation::Scan, 8),
        Code::Insb_m8_DX => (StringOperation::Input, 1),
        Code::Insw_m16_DX => (StringOperation::Input, 2),
        Code::Insd_m32_DX => (StringOperation::Input, 4),
        Code::Outsb_DX_m8 => (StringOperation::Output, 1),
        Code::Outsw_DX_m16 => (StringOperation::Output, 2),
        Code::Outsd_DX_m32 => (StringOperation::Output, 4),
        _ => return None,
    })
}

/// Whether it is a string instruction that accesses memory and no port.
pub(crate) fn is_string(code: Code) -> bool {
    let operation = string_operation(code).map(|(operation, _)| operation);
    operation.is_some_and(|it| !matches!(it, StringOperation::Input | StringOperation::Output))
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    #[test]
    fn frequent_instructions_access_memory_as_all_others_are_said_to() {
        let samples: [&[u8]; 12] = [
            &[0x48, 0x8b, 0x03],
            &[0x8b, 0x03],
            &[0x8a, 0x03],
            &[0x0f, 0xb6, 0x03],
            &[0x0f, 0xb7, 0x03],
            &[0x48, 0x89, 0x03],
            &[0x89, 0x03],
            &[0x88, 0x03],
            &[0x48, 0xc7, 0x03, 1, 0, 0, 0],
            &[0xc7, 0x03, 1, 0, 0, 0],
            &[0xc6, 0x03, 1],
            &[0x48, 0x87, 0x03],
        ];
        let mut factory = InstructionInfoFactory::new();
        for bytes in samples {
            let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            let operands = 0..instruction.op_count();
            let memory = |&operand: &u32| instruction.op_kind(operand) == OpKind::Memory;
            let operand = operands.into_iter().find(memory).expect("a memory operand");
            let known = frequent_access(instruction.code(), operand);
            let access = factory.info(&instruction).op_access(operand);
            assert_eq!(known, Some(access), "{instruction}");
        }
    }
}

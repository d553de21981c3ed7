//! What becomes of each guest instruction, and which registers a run leaves free.

use iced_x86::{
    Code, ConditionCode, EncodingKind, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpKind, Register,
};

use super::action::{Action, Assistance};
use super::builder::selector_offset;
use super::extended::{is_extended, runs_on_mirror};
use super::inline::inline;
use super::key::{Mode, Vectors};
use super::string::{repeated, single};
use crate::instruction::{immediate_bit_form, is_integer, may_run_natively_unmasked, memory_use};
use crate::memory::Linear;

/// An operand relative to EIP, which wraps at 4 GiB wherever the code is.
fn is_relative_to_eip(instruction: &Instruction) -> bool {
    instruction.is_ip_rel_memory_operand() && instruction.memory_base() == Register::EIP
}

/// Decide what becomes of one instruction.
pub(super) fn plan(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    mode: Mode,
) -> Action {
    let bad_lock = instruction.has_lock_prefix() && !instruction.op_code().can_use_lock_prefix();
    if bad_lock || is_relative_to_eip(instruction) {
        return Action::Interpret;
    }
    let guest = mode.guest;
    match instruction.code() {
        Code::Syscall if mode.fast_system_calls && guest.is_user() => return Action::SystemCall,
        Code::Sysretq if mode.fast_system_calls && guest.is_kernel() => {
            return Action::SystemReturn;
        }
        Code::Iretq if mode.fast_system_calls && guest.is_kernel() => {
            return Action::InterruptReturn;
        }
        _ => {}
    }
    if let Some(action) = stack_or_flow(instruction) {
        return action;
    }
    if let Some(repeated) = repeated(instruction) {
        return Action::Repeat(repeated);
    }
    if let Some(single) = single(instruction) {
        return Action::MoveOne(single);
    }
    if let Some(selector) = stored_selector(instruction) {
        return Action::StoreSelector(selector);
    }
    if let Some(kind) = inline(instruction, mode) {
        return Action::Inline(kind);
    }
    if is_hint(instruction) {
        return Action::Skip;
    }
    if runs_on_mirror(instruction, mode) {
        return Action::ExtendedState;
    }
    if let Some(kind) = assistance(instruction, mode) {
        return Action::Assist(kind);
    }
    // Translated code never has DF set.
    if instruction.mnemonic() == Mnemonic::Std {
        return Action::Interpret;
    }
    // A look-up is for all of a masked operand. Where it misses, the interpreter sees which elements count (miss.rs).
    let is_native = may_run_natively_unmasked(instruction);
    if !is_native || needed_vectors(instruction) > mode.vectors {
        return Action::Interpret;
    }
    let Some(operand) = memory_operand(instruction) else { return Action::Copy };
    if instruction.op_kind(operand) != OpKind::Memory {
        return Action::Interpret;
    }
    if matches!(instruction.mnemonic(), Mnemonic::Lea) {
        return address_only(instruction);
    }
    let Some(usage) = memory_use(factory, instruction) else {
        return Action::Interpret;
    };
    let odd = (immediate_bit_form(instruction.code()).is_some() && usage.size < 4)
        || instruction.memory_index().is_xmm()
        || instruction.memory_index().is_ymm()
        || instruction.memory_index().is_zmm()
        || usage.size == 0;
    if odd { Action::Interpret } else { Action::Memory(usage) }
}

fn memory_operand(instruction: &Instruction) -> Option<u32> {
    (0..instruction.op_count()).find(|&operand| {
        !matches!(
            instruction.op_kind(operand),
            OpKind::Register
                | OpKind::Immediate8
                | OpKind::Immediate8_2nd
                | OpKind::Immediate16
                | OpKind::Immediate32
                | OpKind::Immediate64
                | OpKind::Immediate8to16
                | OpKind::Immediate8to32
                | OpKind::Immediate8to64
                | OpKind::Immediate32to64
        )
    })
}

/// Where the selector is that a `mov` stores in memory.
fn stored_selector(instruction: &Instruction) -> Option<i32> {
    let stores = matches!(
        instruction.code(),
        Code::Mov_rm16_Sreg | Code::Mov_r32m16_Sreg | Code::Mov_r64m16_Sreg
    );
    if !stores || instruction.op0_kind() != OpKind::Memory || instruction.has_lock_prefix() {
        return None;
    }
    let number = crate::instruction::segment_register(instruction.op1_register()) as usize;
    Some(selector_offset(number))
}

fn is_hint(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Nop
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetch
            | Mnemonic::Endbr64
            | Mnemonic::Endbr32
    )
}

fn address_only(instruction: &Instruction) -> Action {
    if !instruction.is_ip_rel_memory_operand() {
        return Action::Copy;
    }
    let value = instruction.memory_displacement64();
    match instruction.op0_register().size() {
        8 if instruction.memory_base() == Register::RIP => {
            Action::Address(instruction.op0_register(), Linear(value))
        }
        _ => Action::Interpret,
    }
}

/// What must be enabled for an instruction to run.
fn needed_vectors(instruction: &Instruction) -> Vectors {
    if is_integer(instruction) {
        return Vectors::None;
    }
    match instruction.encoding() {
        EncodingKind::Legacy => Vectors::Legacy,
        // Opmask instructions are VEX encoded.
        EncodingKind::VEX
            if !instruction.op0_register().is_k() && !instruction.op1_register().is_k() =>
        {
            Vectors::Avx
        }
        _ => Vectors::All,
    }
}

/// Stack and control-flow instructions that have a translation of their own.
fn stack_or_flow(instruction: &Instruction) -> Option<Action> {
    let operand_size_is_odd = |size: usize| instruction.op0_register().size() != size;
    Some(match instruction.flow_control() {
        FlowControl::Next => match instruction.code() {
            Code::Push_r64 | Code::Push_rm64 if instruction.op0_kind() == OpKind::Register => {
                Action::Push(instruction.op0_register())
            }
            Code::Push_rm64 => Action::PushMemory,
            Code::Pushq_imm8 | Code::Pushq_imm32 => {
                Action::PushConstant(instruction.immediate(0) as i32)
            }
            Code::Pop_r64 | Code::Pop_rm64 if instruction.op0_kind() == OpKind::Register => {
                Action::Pop(instruction.op0_register())
            }
            Code::Leaveq => Action::Leave,
            _ => return None,
        },
        _ if leads_nowhere(instruction) => Action::Interpret,
        FlowControl::ConditionalBranch => {
            let condition = instruction.condition_code();
            let near = instruction.is_jcc_short_or_near()
                && instruction.op0_kind() == OpKind::NearBranch64
                && condition != ConditionCode::None;
            if !near {
                return Some(Action::Interpret);
            }
            Action::Branch(condition as u8 - 1, near_target(instruction))
        }
        FlowControl::UnconditionalBranch
            if instruction.op0_kind() == OpKind::NearBranch64
                && instruction.is_jmp_short_or_near() =>
        {
            Action::Jump(near_target(instruction))
        }
        FlowControl::Call if instruction.code() == Code::Call_rel32_64 => {
            Action::Call(near_target(instruction))
        }
        FlowControl::IndirectBranch if instruction.code() == Code::Jmp_rm64 => {
            let register = instruction.op0_kind() == OpKind::Register;
            if register && operand_size_is_odd(8) {
                return Some(Action::Interpret);
            }
            Action::JumpIndirect
        }
        FlowControl::IndirectCall if instruction.code() == Code::Call_rm64 => Action::CallIndirect,
        FlowControl::Return => match instruction.code() {
            Code::Retnq => Action::Return(0),
            Code::Retnq_imm16 => Action::Return(instruction.immediate16()),
            _ => Action::Interpret,
        },
        _ => Action::Interpret,
    })
}

/// A direct near branch to an address that is not canonical, which faults.
fn leads_nowhere(instruction: &Instruction) -> bool {
    let near = instruction.op0_kind() == OpKind::NearBranch64;
    near && !near_target(instruction).is_canonical()
}

/// Where a direct near branch leads.
fn near_target(instruction: &Instruction) -> Linear {
    Linear(instruction.near_branch_target())
}

/// General-purpose registers that an instruction reads or writes, as a bit set by number.
pub(super) fn registers_used(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> u16 {
    let info = factory.info(instruction);
    info.used_registers()
        .iter()
        .filter(|used| used.register().is_gpr())
        .fold(0, |set, used| set | 1 << used.register().full_register().number())
}

/// How an instruction is helped with, if it is.
fn assistance(instruction: &Instruction, mode: Mode) -> Option<Assistance> {
    if instruction.has_lock_prefix() {
        return None;
    }
    let kernel = mode.guest.is_kernel();
    Some(match instruction.mnemonic() {
        Mnemonic::Cpuid => Assistance::Identify,
        Mnemonic::Mov if kernel && instruction.op0_register() == Register::CR3 => Assistance::Anew,
        Mnemonic::Invlpg | Mnemonic::Invpcid | Mnemonic::Wrmsr if kernel => Assistance::Anew,
        Mnemonic::Rdmsr if kernel => Assistance::Onwards,
        Mnemonic::Xgetbv => Assistance::Onwards,
        Mnemonic::Mov if loads_data_segment(instruction.op0_register()) => Assistance::Onwards,
        _ if crate::instruction::is_string(instruction.code()) => Assistance::Onwards,
        mnemonic if is_extended(mnemonic) => Assistance::Onwards,
        _ => return None,
    })
}

/// A segment register of which translated code assumes nothing.
fn loads_data_segment(register: Register) -> bool {
    matches!(register, Register::DS | Register::ES | Register::FS | Register::GS)
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    /// What Rust changes, and what these instructions read, must be known as used by them: else a block
    /// would have its own values there.
    #[test]
    fn the_registers_of_instructions_with_help_are_known() {
        let check = |bytes: &[u8], numbers: &[u16]| {
            let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            let mode = Mode::default();
            assert!(assistance(&instruction, mode).is_some(), "{instruction}");
            let used = registers_used(&mut InstructionInfoFactory::new(), &instruction);
            let expected = numbers.iter().fold(0, |set, number| set | 1 << number);
            assert_eq!(used, expected, "{instruction}");
        };
        check(&[0x0f, 0xa2], &[0, 1, 2, 3]);
        check(&[0x0f, 0x32], &[0, 1, 2]);
        check(&[0x0f, 0x30], &[0, 1, 2]);
        check(&[0x0f, 0x01, 0xd0], &[0, 1, 2]);
        check(&[0x48, 0x0f, 0xc7, 0x26], &[0, 2, 6]);
        check(&[0x48, 0x0f, 0xae, 0x26], &[0, 2, 6]);
        check(&[0x48, 0x0f, 0xae, 0x2e], &[0, 2, 6]);
        check(&[0x48, 0x0f, 0xae, 0x36], &[0, 2, 6]);
        check(&[0x48, 0x0f, 0xae, 0x06], &[6]);
        check(&[0x0f, 0x22, 0xdf], &[7]);
        check(&[0x0f, 0x01, 0x3f], &[7]);
        check(&[0x66, 0x0f, 0x38, 0x82, 0x07], &[0, 7]);
        check(&[0x8e, 0xd8], &[0]);
        check(&[0x48, 0xa5], &[6, 7]);
        check(&[0x48, 0xab], &[0, 7]);
        check(&[0x48, 0xad], &[0, 6]);
        check(&[0xf2, 0xae], &[0, 1, 7]);
        check(&[0xf3, 0xa6], &[1, 6, 7]);
    }
}

//! The choice of a translation for each guest instruction, and the registers that a run leaves free.
//!
//! What kind an instruction is, the class table says (instruction/class.rs), here as in the interpreter. This file
//! looks at iced's codes only where the forms of a class differ: in operand size, or in which of a pair it is.

use iced_x86::{
    Code, EncodingKind, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
    Register,
};

use super::action::{Action, Assistance};
use super::builder::selector_offset;
use super::code_32;
use super::extended::runs_on_mirror;
use super::inline::inline;
use super::key::{Mode, Vectors};
use super::string::{repeated, single};
use crate::context::register_offset;
use crate::instruction::{
    Class, class_of, immediate_bit_form, is_integer, is_string, may_run_natively_unmasked,
    memory_use,
};
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
    let action = plan_for_any_kernel(factory, instruction, mode);
    if mode.paravirtual { action.for_paravirtual() } else { action }
}

fn plan_for_any_kernel(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    mode: Mode,
) -> Action {
    let bad_lock = instruction.has_lock_prefix() && !instruction.op_code().can_use_lock_prefix();
    if bad_lock || is_relative_to_eip(instruction) {
        return Action::Interpret;
    }
    let class = class_of(instruction.code());
    if !mode.guest.is_64_bit() && !code_32::means_the_same(instruction, class, mode) {
        return Action::Interpret;
    }
    let own = entry(instruction, class, mode).or_else(|| stack(instruction, class));
    if let Some(action) = own.or_else(|| flow(instruction, class)) {
        return action;
    }
    if let Some(repeated) = repeated(instruction) {
        return Action::Repeat(repeated);
    }
    if let Some(single) = single(instruction) {
        return Action::MoveOne(single);
    }
    if let Some(selector) = stored_selector(instruction, class) {
        return Action::StoreSelector(selector);
    }
    if let Some((limit, base)) = stored_table(instruction, class, mode) {
        return Action::StoreTable(limit, base);
    }
    if let Some(kind) = inline(instruction, mode) {
        return Action::Inline(kind);
    }
    if class == Class::Hint {
        return Action::Skip;
    }
    if runs_on_mirror(instruction, mode) {
        return Action::ExtendedState;
    }
    if let Some(kind) = assistance(instruction, mode) {
        return Action::Assist(kind);
    }
    // Translated code never has DF set. (`std` has no class of its own: the interpreter has the host execute it.)
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
    if class == Class::LoadEffectiveAddress {
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
fn stored_selector(instruction: &Instruction, class: Class) -> Option<i32> {
    let stores = class == Class::StoreSegment && instruction.op0_kind() == OpKind::Memory;
    if !stores || instruction.has_lock_prefix() {
        return None;
    }
    let number = crate::instruction::segment_register(instruction.op1_register()) as usize;
    Some(selector_offset(number))
}

/// Where the limit and the base are that `sgdt` or `sidt` stores. Firmware in 32-bit mode has its variables behind the
/// interrupt table, and asks for it all the time. Of 64-bit code, which may reach the kernel's memory through the
/// mirror, the two parts could come to lie on either side of a fault.
fn stored_table(instruction: &Instruction, class: Class, mode: Mode) -> Option<(i32, i32)> {
    let is_translated = class == Class::StoreTable
        && !mode.guest.is_64_bit()
        && mode.guest.is_kernel()
        && !instruction.has_lock_prefix();
    is_translated.then(|| match instruction.mnemonic() {
        Mnemonic::Sgdt => (register_offset!(gdtr.limit), register_offset!(gdtr.base)),
        _ => (register_offset!(idtr.limit), register_offset!(idtr.base)),
    })
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

/// Entries into the kernel and returns from it that have a translation in this mode.
fn entry(instruction: &Instruction, class: Class, mode: Mode) -> Option<Action> {
    let kernel = mode.guest.is_kernel();
    match (class, instruction.code()) {
        (Class::Syscall, _) if mode.paravirtual => {
            Some(if kernel { Action::Hypercall } else { Action::SystemCallOfGuest })
        }
        (Class::InterruptReturn, Code::Iretq) if kernel && mode.paravirtual => {
            Some(Action::ReturnInKernel)
        }
        _ if !mode.fast_system_calls => None,
        (Class::Syscall, _) if mode.guest.is_user() => Some(Action::SystemCall),
        (Class::Sysret, Code::Sysretq) if kernel => Some(Action::SystemReturn),
        (Class::InterruptReturn, Code::Iretq) if kernel => Some(Action::InterruptReturn),
        _ => None,
    }
}

/// Stack instructions that have a translation of their own: those with the operand size of the code's addresses. (The
/// 32-bit forms are not there in 64-bit mode, nor the other way round.)
fn stack(instruction: &Instruction, class: Class) -> Option<Action> {
    let names_register = instruction.op0_kind() == OpKind::Register;
    Some(match (class, instruction.code()) {
        (Class::Push, Code::Push_r64 | Code::Push_rm64 | Code::Push_r32 | Code::Push_rm32)
            if names_register =>
        {
            Action::Push(instruction.op0_register().full_register())
        }
        (Class::Push, Code::Push_rm64 | Code::Push_rm32) => Action::PushMemory,
        (
            Class::Push,
            Code::Pushq_imm8 | Code::Pushq_imm32 | Code::Pushd_imm8 | Code::Pushd_imm32,
        ) => Action::PushConstant(instruction.immediate(0) as i32),
        (Class::Pop, Code::Pop_r64 | Code::Pop_rm64 | Code::Pop_r32 | Code::Pop_rm32)
            if names_register =>
        {
            Action::Pop(instruction.op0_register().full_register())
        }
        (Class::LeaveFrame, Code::Leaveq | Code::Leaved) => Action::Leave,
        _ => return None,
    })
}

/// What becomes of an instruction that changes the flow of control. The near ones have translations whose operands have
/// the size of the code's addresses.
fn flow(instruction: &Instruction, class: Class) -> Option<Action> {
    if instruction.flow_control() == FlowControl::Next {
        return None;
    }
    if leads_nowhere(instruction) {
        return Some(Action::Interpret);
    }
    let is_direct = instruction.op0_kind() == OpKind::NearBranch64;
    Some(match (class, instruction.code()) {
        (Class::JumpConditionally, _) if is_direct => {
            Action::Branch(instruction.condition_code() as u8 - 1, near_target(instruction))
        }
        (Class::JumpNear, _) if is_direct => Action::Jump(near_target(instruction)),
        (Class::JumpNear, Code::Jmp_rm64 | Code::Jmp_rm32) => Action::JumpIndirect,
        (Class::CallNear, _) if is_direct => Action::Call(near_target(instruction)),
        (Class::CallNear, Code::Call_rm64 | Code::Call_rm32) => Action::CallIndirect,
        (Class::ReturnNear, Code::Retnq | Code::Retnd) => Action::Return(0),
        (Class::ReturnNear, Code::Retnq_imm16 | Code::Retnd_imm16) => {
            Action::Return(instruction.immediate16())
        }
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

/// How Rust assists with an instruction, if it does.
fn assistance(instruction: &Instruction, mode: Mode) -> Option<Assistance> {
    if instruction.has_lock_prefix() {
        return None;
    }
    let kernel = mode.guest.is_kernel();
    let class = class_of(instruction.code());
    Some(match class {
        Class::Identify => Assistance::Identify,
        Class::MoveToControl if kernel && instruction.op0_register() == Register::CR3 => {
            Assistance::Anew
        }
        Class::InvalidatePage | Class::InvalidatePcid | Class::WriteMsr if kernel => {
            Assistance::Anew
        }
        Class::ReadMsr if kernel && mode.paravirtual => Assistance::ReadMsr,
        Class::ReadMsr if kernel => Assistance::Onwards,
        Class::GetExtendedControl => Assistance::Onwards,
        Class::MoveToSegment if kernel && mode.paravirtual && loads_fs(instruction) => {
            Assistance::LoadFs
        }
        Class::MoveToSegment if loads_data_segment(instruction.op0_register()) => {
            Assistance::Onwards
        }
        Class::String if is_string(instruction.code()) => Assistance::Onwards,
        _ if class.is_extended_state() => Assistance::Onwards,
        _ => return None,
    })
}

/// `mov` of a general-purpose register to FS.
fn loads_fs(instruction: &Instruction) -> bool {
    instruction.op0_register() == Register::FS && instruction.op1_kind() == OpKind::Register
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

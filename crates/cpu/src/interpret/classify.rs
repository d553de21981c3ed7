//! Which instructions may run on the host's CPU as they are.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

/// How an instruction is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// On the host's CPU: it changes nothing but registers, flags, vector state and at most one
    /// explicit memory operand, and needs no privilege.
    Native,
    /// By the interpreter.
    Special,
}

/// The class of a valid instruction. What is not known to be innocuous is special.
pub(crate) fn classify(instruction: &Instruction) -> Class {
    if has_masked_memory(instruction) { Class::Special } else { classify_unmasked(instruction) }
}

/// The same where all of a masked operand in memory is known to be accessible.
pub(crate) fn classify_unmasked(instruction: &Instruction) -> Class {
    let special = instruction.is_invalid()
        || instruction.flow_control() != FlowControl::Next
        || instruction.is_privileged()
        || instruction.is_string_instruction()
        || instruction.is_stack_instruction()
        || instruction.is_vsib()
        || has_system_operand(instruction)
        || super::special_handler(instruction).is_some() && !is_harmless(instruction.mnemonic())
        || !super::announces(instruction);
    if special { Class::Special } else { Class::Native }
}

/// A masked vector operand in memory: elements that the mask leaves out do not fault.
pub(crate) fn has_masked_memory(instruction: &Instruction) -> bool {
    instruction.has_op_mask()
        && (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
}

/// An operand that is a segment, control, debug or test register, or a far pointer.
fn has_system_operand(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| {
        let register = instruction.op_register(operand);
        instruction.op_kind(operand) == OpKind::Register
            && (register.is_segment_register()
                || register.is_cr()
                || register.is_dr()
                || register.is_tr()
                || matches!(register, Register::EIP | Register::RIP))
    })
}

/// Instructions that have a handler but would run as well on the host's CPU.
fn is_harmless(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    let hint = matches!(
        mnemonic,
        M::Prefetchnta
            | M::Prefetcht0
            | M::Prefetcht1
            | M::Prefetcht2
            | M::Prefetch
            | M::Prefetchw
            | M::Prefetchwt1
    );
    let nothing = matches!(mnemonic, M::Nop | M::Pause | M::Endbr32 | M::Endbr64);
    // Special outside 64-bit mode, where nothing is translated.
    let clearing = matches!(mnemonic, M::Vzeroall | M::Vzeroupper);
    hint || nothing || clearing || mnemonic == M::Lea
}

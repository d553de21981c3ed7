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
    let special = instruction.is_invalid()
        || instruction.flow_control() != FlowControl::Next
        || instruction.is_privileged()
        || instruction.is_string_instruction()
        || instruction.is_stack_instruction()
        || instruction.is_vsib()
        || has_masked_memory(instruction)
        || has_system_operand(instruction)
        || is_sensitive(instruction.mnemonic())
        || !super::announces(instruction);
    if special { Class::Special } else { Class::Native }
}

/// A masked vector operand in memory: elements that the mask leaves out do not fault.
pub(super) fn has_masked_memory(instruction: &Instruction) -> bool {
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

/// Instructions that neither iced's tables nor their operands give away.
fn is_sensitive(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    match mnemonic {
        M::Cpuid | M::Rdtsc | M::Rdtscp | M::Rdpid | M::Rdpmc | M::Rdpru => true,
        M::In | M::Out | M::Cli | M::Sti | M::Stac | M::Clac | M::Hlt => true,
        M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw | M::Lmsw | M::Clts => true,
        M::Lar | M::Lsl | M::Verr | M::Verw | M::Arpl | M::Bound | M::Xlatb => true,
        M::Lds | M::Les | M::Lfs | M::Lgs | M::Lss | M::Swapgs => true,
        M::Rdfsbase | M::Rdgsbase | M::Wrfsbase | M::Wrgsbase => true,
        M::Xgetbv | M::Xsetbv | M::Fxsave | M::Fxsave64 | M::Fxrstor | M::Fxrstor64 => true,
        M::Xsave | M::Xsave64 | M::Xsavec | M::Xsavec64 | M::Xsaveopt | M::Xsaveopt64 => true,
        M::Xrstor | M::Xrstor64 | M::Xsaves | M::Xsaves64 | M::Xrstors | M::Xrstors64 => true,
        M::Maskmovq | M::Maskmovdqu | M::Vmaskmovdqu => true,
        M::Vmaskmovps | M::Vmaskmovpd | M::Vpmaskmovd | M::Vpmaskmovq => true,
        M::Clflush | M::Clflushopt | M::Clwb | M::Clzero | M::Cldemote => true,
        M::Daa | M::Das | M::Aaa | M::Aas | M::Aam | M::Aad | M::Salc => true,
        M::Monitor | M::Mwait | M::Monitorx | M::Mwaitx | M::Umonitor | M::Umwait => true,
        M::Tpause | M::Movdir64b | M::Enqcmd | M::Enqcmds | M::Ptwrite => true,
        M::Rdpkru | M::Wrpkru | M::Xtest | M::Xend | M::Xabort | M::Serialize => true,
        M::Vmcall | M::Vmmcall | M::Vmfunc | M::Getsec | M::Rsm | M::Enclu => true,
        M::Invlpg | M::Invpcid | M::Wbinvd | M::Wbnoinvd | M::Invd => true,
        _ => false,
    }
}

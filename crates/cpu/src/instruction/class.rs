//! The class of every instruction: one table, by iced's code.
//!
//! A class is what the interpreter has a routine for. An instruction without one is [`Class::Plain`]: it may run on
//! the host's processor as it is, if nothing else speaks against it ([`may_run_natively`]), and is #UD if not. The
//! translator, the interpreter and the fuzzer (`fuzz/src/forms.rs`) read this table to tell kinds of instructions
//! apart.

use std::sync::LazyLock;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpCodeOperandKind, OpKind, Register};

use super::announced::{announces, is_no_operation_without_feature};
use super::operand::{has_masked_memory, string_operation};

/// What carries an instruction out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Class {
    /// The host's processor, or nothing.
    Plain,
    // Control flow.
    JumpConditionally,
    JumpNear,
    CallNear,
    FarDirect,
    FarIndirect,
    ReturnNear,
    ReturnFar,
    Loop,
    JumpIfCounterZero,
    InterruptReturn,
    SoftwareInterrupt,
    Syscall,
    Sysret,
    Sysenter,
    Sysexit,
    Undefined,
    // The stack.
    Push,
    Pop,
    PushAll,
    PopAll,
    PushFlags,
    PopFlags,
    EnterFrame,
    LeaveFrame,
    /// `movs`, `stos`, `lods`, `cmps`, `scas`, `ins`, `outs`.
    String,
    // Sensitive instructions, and those without effect.
    Port,
    InterruptFlag,
    AlignmentFlag,
    Halt,
    Identify,
    CallHypervisor,
    TimeStamp,
    TimeStampAndProcessor,
    Processor,
    PerformanceCounter,
    /// Instructions without an effect that a guest could see, which a block leaves out: `nop`, prefetches, `endbr64`.
    Hint,
    /// The others without effect: `pause`, and opcodes that are reserved for what the processor does not have.
    NoOperation,
    LoadEffectiveAddress,
    FlushLine,
    FlushCaches,
    // The system side.
    MoveToSegment,
    StoreSegment,
    MoveToControl,
    MoveFromControl,
    MoveToDebug,
    MoveFromDebug,
    /// A test register, which no processor has any more.
    NoSuchRegister,
    LoadFarPointer,
    LoadTable,
    StoreTable,
    StoreSystemSelector,
    LoadLocalTable,
    LoadTaskRegister,
    LoadAccessRights,
    LoadSegmentLimit,
    VerifySegment,
    AdjustRpl,
    StoreMachineStatus,
    LoadMachineStatus,
    ClearTaskSwitched,
    InvalidatePage,
    InvalidatePcid,
    SwapGs,
    ReadMsr,
    WriteMsr,
    ReadSegmentBase,
    WriteSegmentBase,
    GetExtendedControl,
    SetExtendedControl,
    // What 64-bit mode does not have.
    AsciiAdjust,
    DecimalAdjust,
    AsciiAdjustProduct,
    AsciiAdjustDividend,
    CheckBounds,
    SetAlFromCarry,
    TranslateByte,
    // Extended state.
    Fxsave,
    Fxrstor,
    Xsave,
    Xrstor,
    ClearVectors,
    // Vectors of which elements are left out.
    MoveBySign,
    StoreBytesBySign,
    Gather,
    Scatter,
}

impl Class {
    /// Whether its instructions save or restore x87 and vector state: the XSAVE family, `fxsave`, `fxrstor`.
    pub(crate) fn is_extended_state(self) -> bool {
        matches!(self, Class::Fxsave | Class::Fxrstor | Class::Xsave | Class::Xrstor)
    }
}

/// The class of each code.
static CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| {
    let count = Code::values().map(|code| code as usize).max().unwrap_or(0) + 1;
    let mut classes = vec![Class::Plain; count];
    Code::values().for_each(|code| classes[code as usize] = find(code));
    classes
});

/// The class of an instruction with this code.
#[inline]
pub fn class_of(code: Code) -> Class {
    CLASSES[code as usize]
}

/// All codes of instructions, by class: what a fuzzer chooses from, so that it comes to rare classes as often as to
/// others.
pub fn codes_by_class() -> &'static [(Class, Vec<Code>)] {
    static CODES: LazyLock<Vec<(Class, Vec<Code>)>> = LazyLock::new(|| {
        let mut all: Vec<(Class, Vec<Code>)> = Vec::new();
        for code in Code::values().filter(|code| code.op_code().is_instruction()) {
            let class = class_of(code);
            match all.iter_mut().find(|(known, _)| *known == class) {
                Some((_, codes)) => codes.push(code),
                None => all.push((class, vec![code])),
            }
        }
        all
    });
    &CODES
}

fn find(code: Code) -> Class {
    if code.is_jcc_short_or_near() {
        return Class::JumpConditionally;
    }
    if string_operation(code).is_some() {
        return Class::String;
    }
    let mnemonic = code.mnemonic();
    if is_no_operation_without_feature(mnemonic) {
        return Class::NoOperation;
    }
    let found = control(code, mnemonic)
        .or_else(|| stack(mnemonic))
        .or_else(|| sensitive(mnemonic))
        .or_else(|| special_register(code))
        .or_else(|| system(mnemonic))
        .or_else(|| legacy(mnemonic))
        .or_else(|| vector(code, mnemonic));
    found.unwrap_or(Class::Plain)
}

fn control(code: Code, mnemonic: Mnemonic) -> Option<Class> {
    use Code as C;
    use Mnemonic as M;
    match code {
        C::Jmp_ptr1616 | C::Jmp_ptr1632 | C::Call_ptr1616 | C::Call_ptr1632 => {
            return Some(Class::FarDirect);
        }
        C::Call_m1616
        | C::Call_m1632
        | C::Call_m1664
        | C::Jmp_m1616
        | C::Jmp_m1632
        | C::Jmp_m1664 => {
            return Some(Class::FarIndirect);
        }
        _ => {}
    }
    Some(match mnemonic {
        M::Jmp => Class::JumpNear,
        M::Call => Class::CallNear,
        M::Ret => Class::ReturnNear,
        M::Retf => Class::ReturnFar,
        M::Loop | M::Loope | M::Loopne => Class::Loop,
        M::Jcxz | M::Jecxz | M::Jrcxz => Class::JumpIfCounterZero,
        M::Iret | M::Iretd | M::Iretq => Class::InterruptReturn,
        M::Int | M::Int3 | M::Int1 | M::Into => Class::SoftwareInterrupt,
        M::Syscall => Class::Syscall,
        M::Sysret | M::Sysretq => Class::Sysret,
        M::Sysenter => Class::Sysenter,
        M::Sysexit | M::Sysexitq => Class::Sysexit,
        M::Ud0 | M::Ud1 | M::Ud2 => Class::Undefined,
        _ => return None,
    })
}

fn stack(mnemonic: Mnemonic) -> Option<Class> {
    use Mnemonic as M;
    Some(match mnemonic {
        M::Push => Class::Push,
        M::Pop => Class::Pop,
        M::Pusha | M::Pushad => Class::PushAll,
        M::Popa | M::Popad => Class::PopAll,
        M::Pushf | M::Pushfd | M::Pushfq => Class::PushFlags,
        M::Popf | M::Popfd | M::Popfq => Class::PopFlags,
        M::Enter => Class::EnterFrame,
        M::Leave => Class::LeaveFrame,
        _ => return None,
    })
}

fn sensitive(mnemonic: Mnemonic) -> Option<Class> {
    use Mnemonic as M;
    Some(match mnemonic {
        M::In | M::Out => Class::Port,
        M::Cli | M::Sti => Class::InterruptFlag,
        M::Stac | M::Clac => Class::AlignmentFlag,
        M::Hlt => Class::Halt,
        M::Cpuid => Class::Identify,
        M::Vmcall | M::Vmmcall => Class::CallHypervisor,
        M::Rdtsc => Class::TimeStamp,
        M::Rdtscp => Class::TimeStampAndProcessor,
        M::Rdpid => Class::Processor,
        M::Rdpmc => Class::PerformanceCounter,
        M::Nop | M::Endbr32 | M::Endbr64 => Class::Hint,
        M::Prefetchnta | M::Prefetcht0 | M::Prefetcht1 | M::Prefetcht2 => Class::Hint,
        M::Prefetch | M::Prefetchw => Class::Hint,
        M::Pause | M::Prefetchwt1 | M::Reservednop => Class::NoOperation,
        M::Lea => Class::LoadEffectiveAddress,
        M::Clflush | M::Clflushopt | M::Clwb => Class::FlushLine,
        M::Wbinvd | M::Wbnoinvd | M::Invd => Class::FlushCaches,
        _ => return None,
    })
}

/// `mov` to and from segment, control, debug and test registers.
fn special_register(code: Code) -> Option<Class> {
    use Code as C;
    Some(match code {
        C::Mov_Sreg_rm16 | C::Mov_Sreg_r32m16 | C::Mov_Sreg_r64m16 => Class::MoveToSegment,
        C::Mov_rm16_Sreg | C::Mov_r32m16_Sreg | C::Mov_r64m16_Sreg => Class::StoreSegment,
        C::Mov_cr_r32 | C::Mov_cr_r64 => Class::MoveToControl,
        C::Mov_r32_cr | C::Mov_r64_cr => Class::MoveFromControl,
        C::Mov_dr_r32 | C::Mov_dr_r64 => Class::MoveToDebug,
        C::Mov_r32_dr | C::Mov_r64_dr => Class::MoveFromDebug,
        C::Mov_tr_r32 | C::Mov_r32_tr => Class::NoSuchRegister,
        _ => return None,
    })
}

fn system(mnemonic: Mnemonic) -> Option<Class> {
    use Mnemonic as M;
    Some(match mnemonic {
        M::Les | M::Lds | M::Lfs | M::Lgs | M::Lss => Class::LoadFarPointer,
        M::Lgdt | M::Lidt => Class::LoadTable,
        M::Sgdt | M::Sidt => Class::StoreTable,
        M::Sldt | M::Str => Class::StoreSystemSelector,
        M::Lldt => Class::LoadLocalTable,
        M::Ltr => Class::LoadTaskRegister,
        M::Lar => Class::LoadAccessRights,
        M::Lsl => Class::LoadSegmentLimit,
        M::Verr | M::Verw => Class::VerifySegment,
        M::Arpl => Class::AdjustRpl,
        M::Smsw => Class::StoreMachineStatus,
        M::Lmsw => Class::LoadMachineStatus,
        M::Clts => Class::ClearTaskSwitched,
        M::Invlpg => Class::InvalidatePage,
        M::Invpcid => Class::InvalidatePcid,
        M::Swapgs => Class::SwapGs,
        M::Rdmsr => Class::ReadMsr,
        M::Wrmsr => Class::WriteMsr,
        M::Rdfsbase | M::Rdgsbase => Class::ReadSegmentBase,
        M::Wrfsbase | M::Wrgsbase => Class::WriteSegmentBase,
        M::Xgetbv => Class::GetExtendedControl,
        M::Xsetbv => Class::SetExtendedControl,
        _ => return None,
    })
}

fn legacy(mnemonic: Mnemonic) -> Option<Class> {
    use Mnemonic as M;
    Some(match mnemonic {
        M::Aaa | M::Aas => Class::AsciiAdjust,
        M::Daa | M::Das => Class::DecimalAdjust,
        M::Aam => Class::AsciiAdjustProduct,
        M::Aad => Class::AsciiAdjustDividend,
        M::Bound => Class::CheckBounds,
        M::Salc => Class::SetAlFromCarry,
        M::Xlatb => Class::TranslateByte,
        _ => return None,
    })
}

fn vector(code: Code, mnemonic: Mnemonic) -> Option<Class> {
    use Mnemonic as M;
    Some(match mnemonic {
        M::Fxsave | M::Fxsave64 => Class::Fxsave,
        M::Fxrstor | M::Fxrstor64 => Class::Fxrstor,
        M::Xsave | M::Xsave64 | M::Xsaveopt | M::Xsaveopt64 | M::Xsavec | M::Xsavec64 => {
            Class::Xsave
        }
        M::Xrstor | M::Xrstor64 => Class::Xrstor,
        M::Vzeroall | M::Vzeroupper => Class::ClearVectors,
        M::Vmaskmovps | M::Vmaskmovpd | M::Vpmaskmovd | M::Vpmaskmovq => Class::MoveBySign,
        M::Maskmovq | M::Maskmovdqu | M::Vmaskmovdqu => Class::StoreBytesBySign,
        _ => return indexed_by_vector(code),
    })
}

/// What has a vector of indices in its address (VSIB): a gather, or a scatter if that is its destination.
fn indexed_by_vector(code: Code) -> Option<Class> {
    let mut typical = Instruction::default();
    typical.set_code(code);
    use OpCodeOperandKind as K;
    let is_destination = matches!(
        code.op_code().op0_kind(),
        K::mem_vsib32x
            | K::mem_vsib64x
            | K::mem_vsib32y
            | K::mem_vsib64y
            | K::mem_vsib32z
            | K::mem_vsib64z
    );
    typical.is_vsib().then_some(if is_destination { Class::Scatter } else { Class::Gather })
}

/// Whether a valid instruction may run on the host's processor as it is: it changes nothing but registers, flags,
/// vector state and at most one explicit memory operand, and needs no privilege. What is not known to be innocuous
/// may not.
pub(crate) fn may_run_natively(instruction: &Instruction) -> bool {
    !has_masked_memory(instruction) && may_run_natively_unmasked(instruction)
}

/// The same where all of a masked operand in memory is known to be accessible.
pub(crate) fn may_run_natively_unmasked(instruction: &Instruction) -> bool {
    let class = class_of(instruction.code());
    !(instruction.is_invalid()
        || instruction.flow_control() != FlowControl::Next
        || instruction.is_privileged()
        || instruction.is_string_instruction()
        || instruction.is_stack_instruction()
        || instruction.is_vsib()
        || has_system_operand(instruction)
        || !runs_natively(class, instruction.mnemonic())
        || !announces(instruction))
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

/// Whether the host's processor may execute the instructions of a class, though the interpreter has a routine for
/// some of them.
fn runs_natively(class: Class, mnemonic: Mnemonic) -> bool {
    match class {
        Class::Plain | Class::Hint | Class::LoadEffectiveAddress => true,
        // Different outside 64-bit mode, where they are interpreted (translate/code_32.rs).
        Class::ClearVectors => true,
        // The others are reserved opcodes, whose meaning depends on the host's processor.
        Class::NoOperation => matches!(mnemonic, Mnemonic::Pause | Mnemonic::Prefetchwt1),
        _ => false,
    }
}

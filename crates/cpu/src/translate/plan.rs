//! What becomes of each guest instruction, and which registers a run leaves free.

use iced_x86::{
    Code, ConditionCode, CpuidFeature, EncodingKind, FlowControl, Instruction,
    InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use super::assist::{Assistance, assistance};
use super::extended::runs_on_mirror;
use super::inline::{Inline, inline};
use super::string::{Repeated, repeated, single};
use super::{Mode, Vectors};
use crate::instruction::may_run_natively_unmasked;
use crate::instruction::{MemoryUse, immediate_bit_form, memory_use};
use crate::memory::Linear;
use crate::techniques::{Technique, Techniques};

/// How an instruction is translated.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// Its bytes, as they are.
    Copy,
    /// Nothing: a hint.
    Skip,
    /// With its memory operand looked up.
    Memory(MemoryUse),
    /// Put a linear address, relative to the block's page if that is not known, into a register.
    Address(Register, u64),
    /// `push` of a 64-bit register.
    Push(Register),
    /// `push` of a 64-bit memory operand.
    PushMemory,
    /// `push` of a constant.
    PushConstant(i32),
    /// `pop` into a 64-bit register.
    Pop(Register),
    /// `leave`.
    Leave,
    /// A conditional jump: condition code as encoded, and target.
    Branch(u8, u64),
    /// An unconditional jump to a known address.
    Jump(u64),
    /// A call of a known address.
    Call(u64),
    /// An indirect jump through the instruction's operand.
    JumpIndirect,
    /// An indirect call through the instruction's operand.
    CallIndirect,
    /// A near return that drops so many more bytes.
    Return(u16),
    /// A sensitive instruction that the block does itself.
    Inline(Inline),
    /// `mov` of a segment register, whose selector is there, to memory.
    StoreSelector(i32),
    /// `rep movs` or `rep stos`.
    Repeat(Repeated),
    /// `movs` or `stos` of one element.
    MoveOne(Repeated),
    /// `syscall` from CPL 3.
    SystemCall,
    /// `sysretq` from CPL 0.
    SystemReturn,
    /// `iretq` from CPL 0.
    InterruptReturn,
    /// One of the XSAVE family, on the kernel's memory.
    ExtendedState,
    /// Carried out by Rust for the block.
    Assist(Assistance),
    /// Left to the interpreter.
    Interpret,
}

impl Action {
    /// Whether nothing of the block can come after it.
    pub(super) fn ends_block(&self) -> bool {
        matches!(
            self,
            Action::Jump(_)
                | Action::Call(_)
                | Action::JumpIndirect
                | Action::CallIndirect
                | Action::Return(_)
                | Action::SystemCall
                | Action::SystemReturn
                | Action::InterruptReturn
                | Action::Assist(Assistance::Anew)
                | Action::Interpret
        )
    }

    /// The same where some techniques are not used.
    pub(super) fn by(self, techniques: Techniques) -> Self {
        let needed = match self {
            Action::Inline(Inline::SetAccess(_)) => return self,
            Action::Inline(_) => Technique::Inline,
            Action::ExtendedState if !techniques.has(Technique::ExtendedState) => {
                return Action::Assist(Assistance::Onwards).by(techniques);
            }
            Action::ExtendedState | Action::Assist(_) => Technique::Assists,
            Action::Repeat(_) | Action::MoveOne(_) => Technique::Strings,
            Action::SystemCall | Action::SystemReturn | Action::InterruptReturn => {
                Technique::Entries
            }
            _ => return self,
        };
        if techniques.has(needed) { self } else { Action::Interpret }
    }

    /// Whether the host executes the instruction itself.
    pub(super) fn is_copied(&self) -> bool {
        matches!(self, Action::Copy | Action::Memory(_))
    }
}

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
    Some(super::generate::selector_offset(number))
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
            Action::Address(instruction.op0_register(), value)
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

/// Whether an instruction works on general-purpose registers only, so that no control bit can
/// make it fault.
fn is_integer(instruction: &Instruction) -> bool {
    // `fwait` is as old as the processor, but obeys CR0.MP and CR0.TS.
    instruction.mnemonic() != Mnemonic::Wait
        && instruction.cpuid_features().iter().all(|feature| {
            matches!(
                feature,
                CpuidFeature::INTEL8086
                    | CpuidFeature::INTEL8086_ONLY
                    | CpuidFeature::INTEL186
                    | CpuidFeature::INTEL286
                    | CpuidFeature::INTEL386
                    | CpuidFeature::INTEL486
                    | CpuidFeature::X64
                    | CpuidFeature::CMOV
                    | CpuidFeature::CX8
                    | CpuidFeature::CMPXCHG16B
                    | CpuidFeature::MULTIBYTENOP
                    | CpuidFeature::PAUSE
                    | CpuidFeature::POPCNT
                    | CpuidFeature::LZCNT
                    | CpuidFeature::BMI1
                    | CpuidFeature::BMI2
                    | CpuidFeature::ADX
                    | CpuidFeature::MOVBE
                    | CpuidFeature::RDRAND
                    | CpuidFeature::RDSEED
                    | CpuidFeature::CLFSH
                    | CpuidFeature::CLFLUSHOPT
                    | CpuidFeature::CLWB
                    | CpuidFeature::CET_IBT
                    | CpuidFeature::CET_SS
            )
        })
}

/// Whether an instruction that is copied reads or changes x87 or vector state.
pub(crate) fn touches_vectors(instruction: &Instruction) -> bool {
    let only_memory = matches!(
        instruction.mnemonic(),
        Mnemonic::Lfence | Mnemonic::Sfence | Mnemonic::Mfence | Mnemonic::Movnti | Mnemonic::Crc32
    );
    !only_memory && !is_integer(instruction)
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
            Action::Branch(condition as u8 - 1, instruction.near_branch_target())
        }
        FlowControl::UnconditionalBranch
            if instruction.op0_kind() == OpKind::NearBranch64
                && instruction.is_jmp_short_or_near() =>
        {
            Action::Jump(instruction.near_branch_target())
        }
        FlowControl::Call if instruction.code() == Code::Call_rel32_64 => {
            Action::Call(instruction.near_branch_target())
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
    near && !Linear(instruction.near_branch_target()).is_canonical()
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

//! The translations that a guest instruction can have. [`plan`](super::plan) chooses one of them for each
//! instruction; the files that are named after the kinds emit their host code.

use iced_x86::Register;

use crate::instruction::MemoryUse;
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
    Address(Register, Linear),
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
    Branch(u8, Linear),
    /// An unconditional jump to a known address.
    Jump(Linear),
    /// A call of a known address.
    Call(Linear),
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
    /// `sgdt` or `sidt` of 32-bit code at CPL 0: where the table's limit and base are.
    StoreTable(i32, i32),
    /// `rep movs` or `rep stos`.
    Repeat(Repeated),
    /// `movs` or `stos` of one element.
    MoveOne(Repeated),
    /// `syscall` from CPL 3.
    SystemCall,
    /// The same where the kernel is paravirtual.
    SystemCallOfGuest,
    /// `syscall` by a paravirtual kernel.
    Hypercall,
    /// `sysretq` from CPL 0.
    SystemReturn,
    /// `iretq` from CPL 0.
    InterruptReturn,
    /// The same by a paravirtual kernel, to itself.
    ReturnInKernel,
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
                | Action::SystemCallOfGuest
                | Action::Hypercall
                | Action::SystemReturn
                | Action::InterruptReturn
                | Action::ReturnInKernel
                | Action::Assist(Assistance::Anew)
                | Action::Interpret
        )
    }

    /// The same in a machine whose kernel is paravirtual: what that changes is left to the interpreter, which asks the
    /// paravirtual mode.
    pub(super) fn for_paravirtual(self) -> Self {
        match self {
            Self::Inline(
                Inline::PushFlags
                | Inline::SetAccess(_)
                | Inline::TimeStamp { .. }
                | Inline::ReadSelector(..)
                | Inline::ReadSelectorLow(..)
                | Inline::ReadBase(..)
                | Inline::WriteBase(..),
            ) => self,
            Self::Inline(_) | Self::SystemCall | Self::SystemReturn | Self::InterruptReturn => {
                Self::Interpret
            }
            _ => self,
        }
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
            Action::SystemCall
            | Action::SystemCallOfGuest
            | Action::Hypercall
            | Action::SystemReturn
            | Action::InterruptReturn
            | Action::ReturnInKernel => Technique::Entries,
            _ => return self,
        };
        if techniques.has(needed) { self } else { Action::Interpret }
    }

    /// Registers, by bits, that the translation names besides those that the instruction does.
    pub(super) fn registers_named(&self) -> u16 {
        /// The number of a hypercall, and its answer.
        const RAX: u16 = 1;
        if matches!(self, Action::Hypercall) { RAX } else { 0 }
    }

    /// Whether the host executes the instruction itself.
    pub(super) fn is_copied(&self) -> bool {
        matches!(self, Action::Copy | Action::Memory(_))
    }
}

/// A sensitive instruction with a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inline {
    /// `cli` at CPL 0.
    DisableInterrupts,
    /// `sti` at CPL 0.
    EnableInterrupts,
    /// `stac` or `clac` at CPL 0.
    SetAccess(bool),
    /// `swapgs` at CPL 0.
    SwapGs,
    /// `pushfq`.
    PushFlags,
    /// `popfq` at CPL 0.
    PopFlags,
    /// `rdtsc`, or `rdtscp`.
    TimeStamp { with_processor: bool },
    /// `mov r32, sreg`: destination and the selector's offset.
    ReadSelector(Register, i32),
    /// `mov r16, sreg`, which leaves the rest of the register alone: likewise.
    ReadSelectorLow(Register, i32),
    /// `mov r64, crN` at CPL 0: destination and the field's offset.
    ReadControl(Register, i32),
    /// `rdfsbase` or `rdgsbase`: destination and the base's offset.
    ReadBase(Register, i32),
    /// `wrfsbase` or `wrgsbase`: the base's offset and the source.
    WriteBase(i32, Register),
}

/// A string instruction with a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repeated {
    /// Bytes in an element.
    pub(crate) size: u32,
    /// `movs` rather than `stos`.
    pub(crate) copies: bool,
}

/// How Rust assists a block with an instruction (assist.rs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assistance {
    /// The block goes on.
    Onwards,
    /// The jump cache is asked for the next instruction.
    Anew,
    /// `cpuid`: Rust executes only the leaves that the table of answers lacks.
    Identify,
    /// `rdmsr` by a paravirtual kernel: Rust reads only the registers that the block does not.
    ReadMsr,
    /// `mov` of a register to FS by a paravirtual kernel: Rust loads only the selectors that the block does not.
    LoadFs,
}

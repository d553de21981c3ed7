//! Control flow: near jumps, calls and returns, loops, and the way to far transfers.

use iced_x86::{Code, ConditionCode, Instruction, Mnemonic, OpKind};

use super::operand::{gp0, merge, truncate};
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::memory::Linear;
use crate::state::{SegmentRegister, rflags};

/// Whether a condition holds for these flags (SDM 1 appendix B).
pub(crate) fn holds(condition: ConditionCode, flags: u64) -> bool {
    let set = |flag| flags & flag != 0;
    let less = set(rflags::SF) != set(rflags::OF);
    match condition {
        ConditionCode::None => true,
        ConditionCode::o => set(rflags::OF),
        ConditionCode::no => !set(rflags::OF),
        ConditionCode::b => set(rflags::CF),
        ConditionCode::ae => !set(rflags::CF),
        ConditionCode::e => set(rflags::ZF),
        ConditionCode::ne => !set(rflags::ZF),
        ConditionCode::be => set(rflags::CF) || set(rflags::ZF),
        ConditionCode::a => !set(rflags::CF) && !set(rflags::ZF),
        ConditionCode::s => set(rflags::SF),
        ConditionCode::ns => !set(rflags::SF),
        ConditionCode::p => set(rflags::PF),
        ConditionCode::np => !set(rflags::PF),
        ConditionCode::l => less,
        ConditionCode::ge => !less,
        ConditionCode::le => less || set(rflags::ZF),
        ConditionCode::g => !less && !set(rflags::ZF),
    }
}

/// Bytes in the counter register of `loop` and `jrcxz`.
fn counter_size(code: Code) -> usize {
    use Code::{
        Jcxz_rel8_16, Jcxz_rel8_32, Jrcxz_rel8_16, Jrcxz_rel8_64, Loop_rel8_16_CX,
        Loop_rel8_16_RCX, Loop_rel8_32_CX, Loop_rel8_64_RCX, Loope_rel8_16_CX, Loope_rel8_16_RCX,
        Loope_rel8_32_CX, Loope_rel8_64_RCX, Loopne_rel8_16_CX, Loopne_rel8_16_RCX,
        Loopne_rel8_32_CX, Loopne_rel8_64_RCX,
    };
    match code {
        Jcxz_rel8_16 | Jcxz_rel8_32 | Loop_rel8_16_CX | Loop_rel8_32_CX | Loope_rel8_16_CX
        | Loope_rel8_32_CX | Loopne_rel8_16_CX | Loopne_rel8_32_CX => 2,
        Jrcxz_rel8_16 | Jrcxz_rel8_64 | Loop_rel8_16_RCX | Loop_rel8_64_RCX | Loope_rel8_16_RCX
        | Loope_rel8_64_RCX | Loopne_rel8_16_RCX | Loopne_rel8_64_RCX => 8,
        _ => 4,
    }
}

impl Architectural {
    /// Go to an offset in the code segment.
    ///
    /// # Errors
    ///
    /// #GP(0) when it is not canonical, or beyond the limit.
    pub(super) fn jump_to(&mut self, target: u64) -> Result<(), Trap> {
        let regs = &mut self.context.regs;
        let reachable = if regs.code_size() == crate::state::CodeSize::Bits64 {
            Linear(target).is_canonical()
        } else {
            target <= u64::from(regs.segment(SegmentRegister::Cs).limit)
        };
        if !reachable {
            return Err(gp0());
        }
        regs.rip = target;
        Ok(())
    }

    /// Target of a near jump or call.
    fn near_target(&mut self, instruction: &Instruction) -> Result<u64, Trap> {
        match instruction.op0_kind() {
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                Ok(instruction.near_branch_target())
            }
            _ => self.read_operand(instruction, 0),
        }
    }

    pub(crate) fn jump_near(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let target = self.near_target(instruction)?;
        self.jump_to(target)
    }

    pub(crate) fn call_near(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let target = self.near_target(instruction)?;
        let size = instruction.stack_pointer_increment().unsigned_abs() as usize;
        let back = self.context.regs.rip;
        self.probe_push(size)?;
        self.jump_to(target)?;
        self.push(back, size)
    }

    pub(crate) fn return_near(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let released = match instruction.op_count() {
            0 => 0,
            _ => u64::from(instruction.immediate16()),
        };
        let size = match instruction.code() {
            Code::Retnw | Code::Retnw_imm16 => 2,
            Code::Retnd | Code::Retnd_imm16 => 4,
            _ => 8,
        };
        let target = self.pop(size)?;
        self.adjust_stack(released);
        self.jump_to(target)
    }

    pub(crate) fn jump_conditionally(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        if holds(instruction.condition_code(), self.context.regs.rflags()) {
            return self.jump_to(instruction.near_branch_target());
        }
        Ok(())
    }

    pub(crate) fn loop_near(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = counter_size(instruction.code());
        let counter = &mut self.context.regs.gpr[1];
        let left = truncate(counter.wrapping_sub(1), size);
        *counter = merge(*counter, left, size);
        let zero = self.context.regs.rflags() & rflags::ZF != 0;
        let taken = match instruction.mnemonic() {
            Mnemonic::Loope => zero,
            Mnemonic::Loopne => !zero,
            _ => true,
        };
        if taken && left != 0 {
            return self.jump_to(instruction.near_branch_target());
        }
        Ok(())
    }

    pub(crate) fn jump_if_counter_zero(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let size = counter_size(instruction.code());
        if truncate(self.context.regs.gpr[1], size) == 0 {
            return self.jump_to(instruction.near_branch_target());
        }
        Ok(())
    }

    pub(crate) fn undefined(&mut self, _: &Instruction) -> Result<(), Trap> {
        Err(super::operand::ud())
    }
}

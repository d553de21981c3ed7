//! The classification, over every instruction that exists.

use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpKind};

use crate::instruction::may_run_natively;

/// An instruction of this code, without operands: the tables say the rest.
fn typical(code: Code) -> Instruction {
    let mut instruction = Instruction::default();
    instruction.set_code(code);
    instruction
}

#[test]
fn no_native_instruction_is_privileged_or_changes_the_flow_of_control() {
    for code in Code::values() {
        let op_code = code.op_code();
        if !op_code.is_instruction() || !may_run_natively(&typical(code)) {
            continue;
        }
        assert!(!op_code.is_privileged(), "{code:?} is privileged");
        assert_eq!(code.flow_control(), iced_x86::FlowControl::Next, "{code:?}");
        assert!(op_code.cpl3(), "{code:?} cannot be executed at CPL 3");
        assert!(!op_code.is_save_restore(), "{code:?} saves or restores state");
        assert!(!op_code.is_serializing_intel() || !op_code.is_input_output(), "{code:?}");
    }
}

#[test]
fn no_native_instruction_has_hidden_memory_operands() {
    let mut factory = InstructionInfoFactory::new();
    for code in Code::values() {
        let instruction = typical(code);
        // `lea` with no address makes no sense to iced.
        let skipped = instruction.mnemonic() == Mnemonic::Lea;
        if !code.op_code().is_instruction() || skipped || !may_run_natively(&instruction) {
            continue;
        }
        let explicit = (0..instruction.op_count())
            .filter(|&operand| instruction.op_kind(operand) == OpKind::Memory)
            .count();
        let used = factory.info(&instruction).used_memory().len();
        assert!(used <= explicit, "{code:?} uses memory without saying so");
    }
}

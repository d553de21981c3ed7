//! The classification, over every instruction that exists.

use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpKind};

use crate::instruction::{class_of, codes_by_class, may_run_natively};

/// An instruction of this code, without operands: the tables say the rest.
fn typical(code: Code) -> Instruction {
    let mut instruction = Instruction::default();
    instruction.set_code(code);
    instruction
}

#[test]
fn each_instruction_is_listed_once_with_its_class() {
    let mut listed: Vec<Code> = Vec::new();
    for (class, codes) in codes_by_class() {
        assert!(codes.iter().all(|&code| class_of(code) == *class), "{class:?}");
        listed.extend(codes);
    }
    listed.sort_unstable();
    let all = Code::values().filter(|code| code.op_code().is_instruction());
    assert!(listed.iter().copied().eq(all), "a code is missing, or there twice");
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

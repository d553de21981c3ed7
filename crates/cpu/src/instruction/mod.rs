//! What an instruction is, as far as that does not depend on the processor's state: which class it belongs to, whether
//! the announced processor has it, and how it uses its operands. The translator, the interpreter, their tests and the
//! fuzzer ask this module for the kind of an instruction, and have no lists of their own.

mod announced;
mod class;
mod operand;
mod vectors;

pub(crate) use announced::announces;
pub use class::{Class, class_of, codes_by_class};
pub(crate) use class::{may_run_natively, may_run_natively_unmasked};
pub(crate) use operand::{
    MemoryUse, StringOperation, address_bits, encodable, has_masked_memory, immediate_bit_form,
    is_locked, is_string, memory_use, names_memory, on_context, segment_of, segment_register,
    string_operation, without_moffs,
};
pub(crate) use vectors::{is_integer, touches_vectors};

//! The host CPU is the reference: every instruction form that user mode can execute runs natively
//! and in the engine, from the same random state, and must leave the same state or the same fault.
//!
//! Forms are enumerated from iced's own tables, so that none is forgotten; what is not compared is
//! printed with the reason. `BIVOUAC_SEED` varies the numbers, `BIVOUAC_INSTRUCTION_ROUNDS` how
//! many cases are made of each form, `BIVOUAC_INSTRUCTION` picks forms by name.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod blocks;
mod breakpoints;
mod case;
mod compare;
mod conditions;
mod engine;
mod form;
mod forms;
mod known;
mod layout;
mod native;
mod random;

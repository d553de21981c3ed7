//! The processor: an x86-64 CPU in software that runs guest code until something happens that it
//! cannot do itself, and then returns an [`Exit`], in the manner of KVM's run loop.
//!
//! What it is not: it knows no device, no file and no clock but the time-stamp counter. It calls
//! nobody; ports, MMIO, model-specific registers of the platform and halts are exits.
//!
//! What rules it:
//!
//! 1. *State is precise.* Whenever control is in Rust, [`Registers`] is the architectural state at
//!    a guest instruction boundary, flags included.
//! 2. *Two ways to execute, one meaning.* [`interpret`] executes one instruction at a time in any
//!    processor mode; [`translate`] turns 64-bit code into blocks of host code. What the
//!    translator does not know it leaves to the interpreter, instruction by instruction.
//! 3. *The host CPU computes.* Innocuous instructions run natively on operands that have been
//!    checked and, where needed, copied; nobody re-implements arithmetic.
//! 4. *Guest misbehaviour is data*: an [`Exception`] delivered to the guest. A panic is our bug.

mod address;
mod answers;
mod architectural;
mod board;
mod config;
mod context;
mod debugger;
pub mod exception;
mod exclusive;
pub mod exit;
pub mod history;
pub mod inspect;
mod instruction;
mod interpret;
mod kick;
mod members;
mod memory;
mod mode;
mod native;
mod package;
mod replay;
mod run;
mod saved;
mod start;
pub mod state;
mod statistics;
mod system;
mod techniques;
mod time;
mod trace;
mod translate;
mod user;
mod vcpu;

pub use board::{Board, Hypervisor};
pub use config::{Config, Error, RamRegion};
pub use context::XSAVE_BYTES;
pub use debugger::Unmapped;
pub use exception::{Exception, Trap, Vector};
pub use exit::Exit;
pub use instruction::{Class as InstructionClass, class_of, codes_by_class};
pub use kick::Kick;
pub use memory::place::{Room, room};
pub use mode::GuestMode;
pub use package::Package;
pub use saved::{Saved, Unfit};
pub use state::{Registers, Segment, SegmentRegister, TableRegister};
pub use statistics::Statistics;
pub use techniques::{Technique, Techniques, Unknown as UnknownTechnique};
pub use time::time_stamp;
pub use user::{UserExecution, stop_cycles};
pub use vcpu::Vcpu;

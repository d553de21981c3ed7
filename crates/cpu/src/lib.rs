//! The processor: an x86-64 vCPU in software. It executes guest code until it needs something that is not its own,
//! and then returns an [`Exit`], as KVM's run loop does.
//!
//! What it is not: it knows no device, no file, and no clock except the time-stamp counter. It never calls
//! out of the crate; ports, MMIO, model-specific registers of the platform and halts are exits.
//!
//! What rules it:
//!
//! 1. *State is precise.* Whenever control is in Rust, [`Registers`] is the architectural state at
//!    a guest instruction boundary, flags included.
//! 2. *Two ways to execute, one meaning.* [`interpret`] executes one instruction at a time in any
//!    processor mode; [`translate`] turns code of 64 and of 32 bits into blocks of host code. The translator leaves an
//!    instruction that it does not know to the interpreter.
//! 3. *The host CPU computes.* Innocuous instructions execute natively, on operands that the interpreter has
//!    checked and, where needed, copied; no arithmetic is implemented again.
//! 4. *Guest misbehaviour is data*: an [`Exception`] delivered to the guest. A panic is a bug of this crate.

mod address;
mod architectural;
mod board;
mod config;
mod context;
mod cpuid_cache;
mod debugger;
pub mod exception;
mod exclusive;
pub mod exit;
pub mod history;
pub mod inspect;
mod instruction;
mod interpret;
mod kick;
mod memory;
mod mode;
mod native;
mod paravirtual;
mod peers;
mod replay;
mod run;
mod saved;
mod start;
pub mod state;
mod statistics;
mod stopping;
mod stops;
mod system;
mod techniques;
mod time;
mod trace;
mod translate;
mod user;
mod vcpu;
mod vcpu_group;

pub use board::{Board, Hypervisor};
pub use config::{Config, Error, RamRegion};
pub use context::XSAVE_BYTES;
pub use debugger::Unmapped;
pub use exception::{Exception, Trap, Vector};
pub use exit::Exit;
pub use instruction::{Class as InstructionClass, class_of, codes_by_class};
pub use kick::Kick;
pub use memory::paging::PHYSICAL_BITS;
pub use memory::place::{Room, room};
pub use mode::GuestMode;
pub use paravirtual::{MACHINE_TO_PHYSICAL, SavedParavirtual};
pub use saved::{Saved, Unfit};
pub use state::{Registers, Segment, SegmentRegister, TableRegister};
pub use statistics::Statistics;
pub use stops::{Stopped, Stops, WatchKind, Watchpoint};
pub use techniques::{Technique, Techniques, Unknown as UnknownTechnique};
pub use time::time_stamp;
pub use user::{UserExecution, stop_cycles};
pub use vcpu::Vcpu;
pub use vcpu_group::VcpuGroup;

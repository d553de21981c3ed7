//! One virtual machine, from one configuration: the place where the processor, the machine and its
//! devices meet.
//!
//! What it is not: a command line, a control plane, a device. It owns the processor's thread (the
//! caller's), an alarm and a reader per serial line, and leaves none of them behind.
//!
//! What rules it:
//!
//! 1. *The processor returns, the machine answers.* [`machine`](Machine) dispatches each exit; the
//!    engine never calls a device.
//! 2. *Nobody polls.* Whoever has something for the processor (a deadline, a key, a stop) kicks it.
//! 3. *A reset is a new boot*: memory is cleared, the kernel is loaded again.

#![forbid(unsafe_code)]

mod alarm;
mod clock;
mod configuration;
mod convert;
mod line;
mod machine;
mod processor;
mod run;

pub use alarm::Waker;
pub use clock::HostClock;
pub use configuration::{Configuration, Error, Line, Module, Outcome};
pub use machine::{Machine, Stop};
pub use processor::{Kick, Processor};

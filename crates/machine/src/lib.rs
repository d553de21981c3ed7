//! What a computer is: its memory map, its buses, its interrupt controllers and timers, its ACPI
//! tables, and how it boots.
//!
//! What it is not: it knows no host. Time, randomness, memory and files are handed to it. It knows
//! no processor either: [`Platform`] is asked what the processor cannot answer itself.
//!
//! What rules it:
//!
//! 1. *Nothing runs by itself.* Timers say when they next have something to do and are told that
//!    time has passed; no thread and no callback is in here but the one that wakes a processor.
//! 2. *What concerns one processor costs no lock.* Each processor's thread owns its
//!    [`platform::Socket`]; processors and devices reach each other through mailboxes and
//!    [`interrupts::Line`]s, which are bits in shared words. The chip set is locked for an access;
//!    [`platform`] has the order of locks.
//! 3. *Every register write of a guest is an ordinary event*: nothing panics, overflows or takes
//!    time that the guest can choose.

#![forbid(unsafe_code)]

pub mod acpi;
pub mod boot;
pub mod bus;
pub mod calendar;
pub mod interrupts;
pub mod layout;
pub mod limits;
pub mod memory;
pub mod paravirtual;
pub mod pci;
pub mod platform;
mod power;
pub mod request;
pub mod saved;
pub mod time;
mod timers;

pub use interrupts::{Fault, Line, StartUp, Wake};
pub use platform::{Config, Error, Platform, Socket};
pub use request::{Request, Requests};

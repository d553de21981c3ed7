//! What a computer is: its memory map, its buses, its interrupt controllers and timers, its ACPI
//! tables.
//!
//! What it is not: it knows no host. Time and memory are handed to it. It loads no kernel (crate `boot`), and it knows
//! no processor either: [`Platform`] is asked what the processor cannot answer itself.
//!
//! What rules it:
//!
//! 1. *Nothing runs by itself.* Timers say when they next have something to do and are told that
//!    time has passed; no thread and no callback is in here but the one that wakes a processor.
//! 2. *What concerns one processor costs no lock.* Each processor's thread owns its
//!    side of the board ([`BoardVcpu`]); processors and devices reach each other through mailboxes and
//!    [`interrupts::Line`]s, which are bits in shared words. The chip set is locked for an access;
//!    [`platform`] has the order of locks.
//! 3. *Every register write of a guest is an ordinary event*: nothing panics, overflows or takes
//!    time that the guest can choose.

#![forbid(unsafe_code)]

pub mod acpi;
mod bare;
pub mod board;
pub mod bus;
pub mod calendar;
pub mod hypercall;
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

pub use bare::{BareBoard, BareVcpu};
pub use board::{Backplane, Board, BoardVcpu};
pub use interrupts::{Fault, Line, StartUp, Wake};
pub use platform::{Config, Error, PcVcpu, Platform};
pub use request::{Request, Requests};

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use vm_memory::{GuestAddress, GuestMemoryMmap};

    use crate::board::Surroundings;
    use crate::interrupts::Wake;
    use crate::time::{Hertz, ManualClock};

    struct Nobody;

    impl Wake for Nobody {
        fn wake(&self, _: usize) {}
    }

    /// A clock that stands still, a little memory, and nobody to wake.
    pub(crate) fn surroundings() -> Surroundings {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]);
        Surroundings {
            clock: Arc::new(ManualClock::new(Hertz(1_000_000_000), Duration::ZERO)),
            memory: Arc::new(memory.expect("a little memory")),
            wake: Arc::new(Nobody),
        }
    }
}

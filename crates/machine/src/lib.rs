//! The hardware of a computer apart from its processor: memory map, buses, interrupt controllers, timers, ACPI tables.
//!
//! The crate knows no host: time and memory are handed to it. It loads no kernel (crate `boot`). It knows no processor
//! either: [`Platform`] answers for what the processor cannot do itself.
//!
//! The rules:
//!
//! 1. *Nothing runs by itself.* A timer says when it is next due, and is told that time has passed. The crate has no
//!    thread, and no callback but the one that wakes a vCPU.
//! 2. *A vCPU's own hardware costs no lock.* Each vCPU's thread owns its side of the board ([`BoardVcpu`]). vCPUs and
//!    devices reach each other through mailboxes and [`interrupts::InterruptLine`]s, which are bits in shared words.
//!    The chip set is locked for one access; [`platform`] has the lock order.
//! 3. *Every register write of a guest is an ordinary event*: it cannot make the crate panic, overflow, or take time
//!    that the guest can choose.

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
pub mod toolstack;
pub mod xen;

pub use bare::{BareBoard, BareVcpu};
pub use board::{Backplane, Board, BoardVcpu};
pub use interrupts::{Fault, InterruptLine, StartUp, Wake};
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

//! System calls carried out by a stopped process.
//!
//! Much of what a process has can be asked, and all of it can be made, only by the process itself. A tracer that has
//! stopped it (ptrace(2)) lends it a few pages, the [`Area`]: a page of code that makes one system call after the
//! other, and a list of them, the [`Script`]. Nothing else of the process changes, and it never knows.
//!
//! 1. *The gate.* The first call, the `mmap` of the area, needs a `syscall` instruction that is there already: the
//!    vDSO has one, and if a process has no vDSO, any executable mapping that has those two bytes will do. The task is
//!    stopped where it enters and leaves that call, which disturbs no signal. The last call, the `munmap`, goes the
//!    same way.
//! 2. *The trap.* A script ends with an instruction that faults, and the tracer sees the signal before the process
//!    would. The kernel *changes* the process where such a signal is blocked or ignored (it resets the action), so
//!    all signals are blocked but that one, and of three instructions with three signals one is taken whose signal is
//!    neither ignored nor waiting ([`Trap::choose`]).
//! 3. *Whose registers.* A [`Seat`] is a task together with the registers and the signal mask that it gets back. They
//!    are given back exactly, the pending restart of a system call included: the kernel looks at it when the task
//!    goes on from a stop *inside signal delivery*, so [`Seat::leave`] brings the task into such a stop first.
//! 4. *Code and data are apart*: no page is both writable and executable, which some hosts forbid. Only the tracer
//!    writes the code, through /proc/PID/mem.
//! 5. *The tracer is the only authority*: numbers and arguments are composed here and by our caller. Results are the
//!    process's word and may be anything: they are data to be checked.
//!
//! If the tracer dies, the kernel kills the task (`PTRACE_O_EXITKILL`): a process never goes on in borrowed code.

#![forbid(unsafe_code)]

mod area;
mod code;
mod error;
mod layout;
mod seat;

pub use area::{Area, Call, Script};
pub use code::Trap;
pub use error::Error;
pub use layout::AREA_BYTES;
pub use seat::{Outcome, Seat, find_gate};

//! A machine as gdb sees it, by gdb's remote protocol (gdb's manual, appendix E), which the crate `gdbstub` speaks.
//!
//! - [`debuggee`]: what is asked of a machine. This crate knows no machine; `domain` connects the two.
//! - [`registers`]: the registers that gdb is shown, in one table; `description`: the same table as the XML by which
//!   gdb learns of them.
//! - [`session`]: a client, from its connection to its end; `target`: what the protocol's requests come to; `monitor`:
//!   gdb's `monitor` commands.
//! - [`listener`]: the thread that waits for clients.
//!
//! What rules it:
//!
//! 1. *A processor is a thread*, number 1 for the first. Either all stand still, or some run until the first of them
//!    stops (gdb's all-stop mode).
//! 2. *A client is not trusted more than its user.* What it sends may be anything: it gets an error or is
//!    disconnected, and the machine goes on.
//! 3. *Nothing is left of a client.* However a session ends, no breakpoint stays, and the machine goes on.
//! 4. *Whoever is attached and does nothing costs nothing*: the thread waits in poll(2), the machine has no checks.

#![forbid(unsafe_code)]

pub mod debuggee;
mod description;
pub mod listener;
mod monitor;
pub mod registers;
pub mod session;
mod target;

pub use debuggee::{Debuggee, Going, Places, Refused, Space, Stop, Watch, Watched};
pub use listener::{Listener, serve};
pub use registers::RegisterFile;
pub use session::{Ending, Session};

//! Processes of others, seen and driven from outside: thin wrappers of ptrace(2) and of the calls that tell what a
//! stopped process has.
//!
//! - [`trace`]: attach, stop, continue, registers, signals.
//! - [`wait`]: why a traced task has stopped.
//! - [`extended`]: the layout of the extended state (XSAVE) on this processor.
//! - [`features`]: what this processor has that programs rely on.
//! - [`pagemap`]: which pages of a process hold something.
//! - [`WriteWatch`]: memory of a process whose pages can be protected until they are written.
//! - [`terminal`]: what pseudoterminals have, and their other sides.
//! - [`identity`]: what two tasks share; a descriptor of another process.
//! - [`message_queues`]: what is in POSIX message queues.
//! - [`sockets`]: options of sockets.
//!
//! All numbers of tasks are those of the caller's PID namespace. ptrace belongs to the *thread* that has attached: each
//! call here must be made by that thread, and fails with `ESRCH` in any other.

pub mod extended;
pub mod features;
pub mod identity;
pub mod message_queues;
pub mod owner;
pub mod pagemap;
pub mod sockets;
pub mod terminal;
pub mod trace;
pub mod wait;
mod write_watch;

pub use write_watch::WriteWatch;

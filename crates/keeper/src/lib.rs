//! The keeper: the process that plays domain 0's part among a user's paravirtual domains. There is one for each
//! registry. It says which vCPUs run, and what everybody has used.
//!
//! The first domain starts it, and it ends with the last. It is no party to what a domain does: domains go on when it
//! is killed, and the next one finds them again, because all that it knows is in the registry: which domains live
//! (their locks), what they are worth (`policy.json`), and their gates (`gates`).
//!
//! - `housekeeping`: the main thread. It finds domains and their processes, and answers requests ([`api::keeper`]).
//! - `engine`: the scheduler's thread, which carries out what [`scheduler`] decides: it opens and shuts [`gates`], and
//!   charges what the host has counted (`meter`).
//!
//! What rules it:
//!
//! 1. *It holds nothing that a domain needs.* Without it, gates are open.
//! 2. *It believes the host.* What a domain has used is what the clocks of its processes say, those of helpers
//!    included. What domains write (that a vCPU wants to run, how long it has waited) changes only what they get
//!    themselves.
//! 3. *Who ignores its gates is stopped*: SIGSTOP for the processes in which code of the guest's runs, until others
//!    have had their part ([`scheduler::Overdraft`]). The host continues them when the keeper ends, however it does
//!    ([`host::lifeline`]).
//! 4. *Processes are held by descriptors* (pidfd_open(2)), never by number alone.

#![forbid(unsafe_code)]

mod engine;
mod housekeeping;
pub mod limits;
mod meter;

use std::io;
use std::path::Path;

/// Be the keeper of the registry at this path, until no paravirtual domain lives in it. Ends at once if there is one.
///
/// # Errors
///
/// The registry's and the host's.
pub fn keep(registry: &Path) -> io::Result<()> {
    housekeeping::keep(registry)
}

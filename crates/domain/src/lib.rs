//! Runs a machine from its description ([`spec::Spec`]) as a domain: one process with its helper
//! processes, which other commands can send requests to.
//!
//! - [`run`]: from the description to the machine: the guest, its directories, disks and network,
//!   and its rights.
//! - [`domain`]: a domain among others, and the thread that serves its socket ([`server`],
//!   [`mod@hub`]).
//! - `debugging`: how gdb debugs its guest.
//! - [`processes`]: the program's other executions ([`helper`]): [`network`], [`vsock`],
//!   [`unpack`], [`seal`], [`mod@keeper`], the file server, and a detached machine.
//! - [`inspect`]: traces and profiles of the engine; [`layout`]: the addresses of this process.
//!
//! What it is not: a command line, which is `biv`; a machine, which `vmm` builds and runs; the
//! interface of a domain, and how programs find one, which is `api`; the streams of a user who runs
//! a command, which are `session`.
//!
//! What rules it:
//!
//! 1. *Nothing here knows a command line.* A [`spec::Spec`], or a snapshot with the host resources
//!    for it, is all that there is.
//! 2. *The command in the guest looks like a command on the host.* Its streams are kept apart and
//!    are 8-bit clean; its exit status is the program's ([`api::status`]).
//! 3. *Everything is open before the guest's first instruction*, and then the process confines
//!    itself.
//! 4. *A file grants nothing of the host* that the user has not named or recorded ([`seal`]).

#![forbid(unsafe_code)]

pub mod console;
mod debugging;
pub mod domain;
pub mod inspect;
mod job;
pub mod keeper;
pub mod layout;
mod log;
pub mod network;
pub mod processes;
mod recent;
pub mod run;
pub mod seal;
pub mod server;
pub mod snapshot;
mod toolstack;
pub mod unpack;
pub mod vsock;

pub use domain::{Beginning, Domain, Error, GoingOn, GuestEnd, Plan};
pub use layout::settle;
pub use processes::{OtherProcess, OtherTask, begin};
pub use run::{CheckedSpec, go_on, launch, start_again};
pub use session::{helper, say};

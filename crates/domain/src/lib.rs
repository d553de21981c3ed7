//! Runs the machine that a description ([`spec::Spec`]) means, as a domain: one process, and its helpers, that others
//! can ask things of.
//!
//! - [`run`]: from the description to the machine: the guest, its directories, disks and network, and what it may do.
//! - [`domain`]: its place among other domains, and the thread that serves them ([`server`], [`hub`]).
//! - [`processes`]: what this program is when it has started itself again, for a machine ([`helper`]): [`network`],
//!   [`vsock`], [`unpack`], [`seal`], the file server, or a machine that goes on by itself.
//! - [`inspect`]: what is seen of the engine; [`layout`]: where the host has put this process.
//!
//! What it is not: a command line, which is `biv`; a machine, which is built and run by `vmm`; what a domain answers,
//! and how it is found, which is `api`; the streams of whoever runs a command, which are `session`.
//!
//! What rules it:
//!
//! 1. *Nothing here knows a command line*: a [`spec::Spec`], or a snapshot and what is said of the host, is all.
//! 2. *The command in the guest looks like a command on the host*: its streams are kept apart and 8-bit clean, its
//!    exit status is ours ([`api::status`]).
//! 3. *Everything is open before the guest's first instruction*, and then the process is confined.
//! 4. *A file grants nothing of the host* that the user has not named or recorded ([`seal`]).

#![forbid(unsafe_code)]

pub mod console;
pub mod detach;
pub mod domain;
pub mod helper;
pub mod hub;
pub mod inspect;
mod job;
pub mod layout;
mod log;
pub mod network;
pub mod processes;
mod recent;
pub mod run;
pub mod say;
pub mod seal;
pub mod seat;
pub mod server;
pub mod snapshot;
pub mod unpack;
pub mod vsock;
mod watchers;

pub use domain::{Domain, Error, GoingOn, GuestEnd, Plan};
pub use layout::settle;
pub use processes::begin;
pub use run::{CheckedSpec, go_on, launch};

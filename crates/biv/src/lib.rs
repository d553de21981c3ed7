//! The command `biv`: virtual machines in an ordinary process, without hardware virtualization.
//!
//! What it is: the command line ([`cli`]) and its verbs, and what these need of the host: kernels and
//! root file systems ([`provision`]), an initramfs, the processes that serve a machine ([`helper`]), the
//! terminal, the conversation with the guest's init ([`session`]), and a place among the domains of this
//! user ([`domain`]; the verbs about those that exist are in [`life`]). What it is not: a machine; that is
//! built and run by `vmm`.
//!
//! What rules it:
//!
//! 1. *The command in the guest looks like a command on the host*: its streams are kept apart and
//!    8-bit clean, its exit status is ours ([`api::status`]).
//! 2. *The terminal is restored in every case* ([`session::terminal`]).
//! 3. *The host's system state is never touched*: what is downloaded goes to the user's cache
//!    directory, by the ordinary package client with private state ([`provision`]).
//! 4. *`/dev/kvm` is never opened.*
//! 5. *A file grants nothing of the host* that the user has not named or recorded ([`seal`]).

#![forbid(unsafe_code)]

pub mod cli;
pub mod completions;
pub mod debug;
pub mod doctor;
pub mod domain;
pub mod helper;
pub mod image;
pub mod inspect;
pub mod kernel;
pub mod layout;
pub mod life;
pub mod man;
pub mod network;
pub mod print;
pub mod recent;
pub mod run;
pub mod seal;
pub mod unpack;
pub mod vsock;

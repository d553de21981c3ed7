//! The command `biv`: virtual machines in an ordinary process, without hardware virtualization.
//!
//! What it is: the command line ([`cli`]), its verbs, and what these print ([`print`]). [`life`] has the verbs about
//! domains, which ask them through the crate `api`; `biv run` and `biv restore` are the crate `domain`'s, which is
//! given a description. [`doctor`] and [`debug`] look into the host and the engine. What it is not: a library. A
//! program that runs machines links `domain`, one that asks them things links `api`.
//!
//! What rules it:
//!
//! 1. *Nothing that follows the command line knows it*: it comes to a [`spec::Spec`], or to a request.
//! 2. *The host's system state is never touched*: what is downloaded goes to the user's cache
//!    directory, by the ordinary package client with private state ([`provision`]).
//! 3. *`/dev/kvm` is never opened.*

#![forbid(unsafe_code)]

pub mod cli;
pub mod completions;
pub mod debug;
pub mod doctor;
pub mod image;
pub mod kernel;
pub mod life;
pub mod man;
pub mod print;

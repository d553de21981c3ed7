//! The command `biv`: virtual machines in an ordinary process, without hardware virtualization.
//!
//! What it is: the command line ([`cli`]), its verbs, and their output ([`print`]). [`life`] has the verbs about
//! domains and [`mod@xen`] those about paravirtual ones, which send requests through the crate `api`; `biv run` and
//! `biv restore` hand a description to the crate `domain`. [`mod@pod`] has the verbs about pods, which the crate
//! `pods` keeps. [`project`] has several machines of a file. [`mod@serve`] is what the server of the crate `serve`
//! needs of the command line. [`doctor`] and [`debug`] look into the host and the engine.
//!
//! What it is not: a library. A program that runs machines links `domain`; one that sends requests
//! to domains links `api`.
//!
//! What rules it:
//!
//! 1. *Nothing behind the command line knows it*: it becomes a [`spec::Spec`], or a request.
//! 2. *The host's system state is never touched*: downloads go to the user's cache directory,
//!    through the host's package client with private state ([`provision`]).
//! 3. *`/dev/kvm` is never opened.*

#![forbid(unsafe_code)]

pub mod cache;
mod candidates;
pub mod cli;
pub mod completions;
pub mod debug;
pub mod doctor;
pub mod image;
pub mod kernel;
pub mod life;
mod live;
pub mod man;
pub mod pod;
pub mod print;
pub mod project;
pub mod serve;
mod unfinished;
pub mod xen;

//! What is in between of those who run commands in a domain or a pod, and its first process: one process that all of
//! them are connected with.
//!
//! - [`Hub`]: multiplexes sessions over the channel to the first process.
//! - [`attached`]: an attached client, beside others.
//! - [`connection`]: a connection to the control socket, until it has its answer or becomes a port of the hub.
//!
//! What it is not: a domain or a pod. It knows neither what the first process runs in nor what a request means.
//!
//! What rules it:
//!
//! 1. *Nothing blocks*: one loop polls everything.
//! 2. *Nobody is trusted*: neither clients nor the first process. Each may break what is its own only.

#![forbid(unsafe_code)]

pub mod attached;
pub mod connection;
mod multiplexer;
mod watchers;

pub use multiplexer::{Conversation, Hub, Place, Timekeeper};

//! A guest's network as sockets of an ordinary process: what the guest sends to anybody is sent by a socket
//! of this host, and answered as if there were a network in between. No privilege is needed.
//!
//! What it is not: a switch, a firewall, a router of other protocols. The guest reaches what its user may
//! reach, over IPv4, by TCP, UDP and echo requests, but for the host itself and what takes whoever asks for the
//! host (`reach.rs`), unless that is allowed; it is reached through ports that are published.
//!
//! What rules it:
//!
//! 1. *Frames come from an adversary.* Whatever is not understood is lost, and nothing that the guest can
//!    name grows without a limit ([`limits`]).
//! 2. *One thread, that never waits* but in epoll(7), whose events are edges: what was ready stays so
//!    until a system call says otherwise.
//! 3. *Work is done in batches*: all frames that have come are looked at, each connection has one turn
//!    with all of its own, and what is to be said goes out at once.
//! 4. *It ends with its cable*, the socket to the machine, and leaves nothing behind.

#![forbid(unsafe_code)]

mod addresses;
mod arp;
mod cable;
mod connection;
mod connections;
mod dhcp;
mod echo;
pub mod limits;
mod packets;
mod reach;
mod server;
#[cfg(test)]
mod tests;
mod udp;

pub use addresses::Addresses;
pub use server::{Plan, Server};

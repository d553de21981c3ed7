//! User-mode networking: a guest's network as sockets of an ordinary process. The process sends
//! what the guest sends through sockets of this host, and answers as if there were a network in
//! between. It needs no privilege.
//!
//! What it is not: a switch, a firewall, a router of other protocols. The guest reaches what its
//! user may reach, over IPv4, by TCP, UDP and echo requests. It does not reach the host itself,
//! unless the user allows that (`reach.rs`). Published ports lead to the guest.
//!
//! What rules it:
//!
//! 1. *Frames come from an adversary.* The server drops what it does not understand, and nothing
//!    that the guest can name grows without a limit ([`limits`]).
//! 2. *One thread, which waits only* in epoll(7), with edge-triggered events: a socket that was
//!    ready stays ready until a system call says otherwise.
//! 3. *Work is done in batches*: the server looks at all frames that have come, gives each
//!    connection one turn with all of its frames, and sends all answers at once.
//! 4. *It ends with its cable*, the socket to the machine, or with its line, if its cable is an interface of a pod, and
//!    leaves nothing behind.

#![forbid(unsafe_code)]

mod addresses;
mod arp;
mod cable;
mod connection;
mod connections;
mod dhcp;
mod echo;
mod interface;
pub mod limits;
mod names;
mod neighbours;
mod packets;
mod reach;
mod server;
#[cfg(test)]
mod tests;
mod udp;
mod wire;

pub use addresses::Addresses;
pub use cable::{Cable, Line};
pub use neighbours::Way;
pub use server::{OURS, Plan, Server};

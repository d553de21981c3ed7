//! The other end of a guest's virtio sockets (virtio 1.2, 5.10): streams between programs in the guest and
//! programs of the host, which have Unix sockets, as Firecracker has it. A program of the host connects to
//! a path, says `CONNECT PORT`, hears `OK PORT`, and is connected to that port of the guest's. A connection
//! of the guest's to port N of the host goes to whoever listens at the path with `_N` after it.
//!
//! What it is not: a device. What the guest's driver sends comes over a cable, packet by packet.
//!
//! What rules it:
//!
//! 1. *Packets come from an adversary.* What nobody has asked for is reset, and nothing that the guest can
//!    name grows without a limit ([`limits`]).
//! 2. *One thread, that never waits* but in poll(2).
//! 3. *The cable is always read.* What the guest sends to a program is kept up to the credit that it was
//!    given; who sends more is reset. So a program that does not read makes nobody wait but who talks to it.
//! 4. *What is to be said is remembered, and made when there is room for it*: a guest that does not take its
//!    packets is not answered, and costs no more than its connections.
//! 5. *It ends with its cable*, the socket to the machine.

#![forbid(unsafe_code)]

mod connection;
pub mod limits;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub use server::Server;
pub use wire::{HEADER_BYTES, Header, operation, shutdown};

//! The back-end of a guest's virtio sockets (virtio 1.2, 5.10): streams between programs in the
//! guest and programs of the host, which use Unix sockets, as with Firecracker. A program of the
//! host connects to a path, sends `CONNECT PORT`, receives `OK PORT`, and is connected to that port
//! of the guest. A connection of the guest to port N of the host goes to the program that listens
//! at the path with `_N` after it.
//!
//! What it is not: a device. The guest driver's packets come over a cable.
//!
//! What rules it:
//!
//! 1. *Packets come from an adversary.* A packet that no connection expects is reset, and nothing
//!    that the guest can name grows without a limit ([`limits`]).
//! 2. *One thread, which waits only* in poll(2).
//! 3. *The cable is always read.* The server keeps what the guest sends to a program, up to the
//!    credit that it has given; a connection that sends more is reset. So a program that does not
//!    read holds up nobody but its own peer.
//! 4. *An answer is remembered, and made when there is room for it.* A guest that does not take its
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

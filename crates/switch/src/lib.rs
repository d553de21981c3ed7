//! The switch between the pods and machines of one network: a process of this program, which passes frames from one to
//! another. Of a machine, which is a port like a pod, the text below speaks only where it differs.
//!
//! Each pod is a port: a packet socket (packet(7)) at the other end of the pod's interface, which the pod's keeper
//! sends over the switch's control socket ([`Client`]). The kernel gives that socket only what is not for the gateway,
//! and the gateway is another process for each pod. A machine's socket is one of packets, at whose other end that
//! process is; `biv run` attaches it, and leaves the connection to that process. Which frames go where, and who may
//! send what, is decided by [`router`].
//!
//! Two switches of one network, on two hosts, can be joined: what is for nobody here goes to the other. Whoever carries
//! the frames between them, `biv pod network join`, is one more port.
//!
//! What it is not: a way out of the network, and a place where anything is kept. It may be killed at any time: whoever
//! notices starts another, and all keepers attach their pods again ([`reach`]).
//!
//! What rules it:
//!
//! 1. *A pod says nothing about itself.* Its addresses are what its keeper says; it sends from these only.
//! 2. *A port lasts as long as its keeper's connection*, and the switch as long as there is one.
//! 3. *Whoever is away is silent.* What comes for a pod that is being written down, or that is moving, is held for a
//!    while, up to a limit, and then lost. Nobody answers for it. If it comes back with the same lease elsewhere, it
//!    gets what was held. What begins a TCP connection is held a moment earlier: half of a handshake cannot be written
//!    down.
//! 4. *Nothing waits for a pod.* What a pod does not take is lost, as on a wire.
//! 5. *Nobody there is somebody here.* What comes from the other switch with an address of a pod of this one is
//!    dropped.

#![forbid(unsafe_code)]

mod client;
pub mod limits;
mod port;
mod reach;
mod server;
mod start;
mod wire;

use std::net::Ipv4Addr;

pub use client::{Client, Error, pods_of};
pub use reach::{Unreached, attach_of, has_gone, has_other_children, mend, pair, reach};
pub use server::Server;
pub use start::{KIND, Serving, listen_at, serve, start};
pub use wire::Attach;

/// The Ethernet address of the pod that has this address: so no two pods of a network have the same, and a pod that
/// comes back is known by what others have noted of it.
#[must_use]
pub fn card_of(address: Ipv4Addr) -> [u8; 6] {
    // One of those that anybody may use, and nobody's who is not a pod.
    let [a, b, c, d] = address.octets();
    [0x52, 0x56, a, b, c, d]
}

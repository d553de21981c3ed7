//! The back-end of a network card: a ring of packets that the front-end transmits, and one of pages that it receives
//! into (public/io/netif.h).
//!
//! It has no thread and sends nothing. The program that embeds it calls [`Transmitter::next`] for the packets of a
//! front-end that has notified, and [`Receiver::give`] for a packet that has come.
//!
//! 1. *A packet is copied once, then looked at*: the front-end cannot change what has been checked. Its pages are held
//!    only for the copy.
//! 2. *All slots of a packet, or none.* A packet of which slots are missing is a broken ring; one whose slots make no
//!    sense is answered with errors, and lost.
//! 3. *What is received is in order.* The front-end expects the answer to each page where the page was.
//! 4. *Who has no room is not waited for.* [`Receiver::give`] says so, and that the front-end has been asked for more.

mod receive;
mod settings;
mod transmit;

pub use self::receive::{Given, Receiver};
pub use self::settings::{Ports, Takes, VifSettings, offers};
pub use self::transmit::Transmitter;

/// What is known of a packet's checksum (the transport's, TCP or UDP).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// Nothing.
    #[default]
    Unknown,
    /// Nobody could have damaged the packet.
    Valid,
    /// The packet has the pseudo-header's sum in its place; nobody could have damaged it.
    Blank,
}

/// Whose segments a large packet is to be cut into, where a wire cannot take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
}

/// How a large packet is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segmentation {
    /// What it is.
    pub kind: SegmentKind,
    /// Bytes of payload in each segment, not zero.
    pub bytes: u16,
}

/// What goes with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// Of its checksum.
    pub checksum: Checksum,
    /// If it is larger than a frame.
    pub segmentation: Option<Segmentation>,
}

/// The bytes of the header of an Ethernet frame, without which nothing is a packet.
pub const HEADER_BYTES: usize = 14;

//! The way of a machine to its neighbours, the others of a network that it shares.
//!
//! The machine has one cable, and two who answer at its other end: this process, which is the gateway and the name
//! server, and the neighbours. Their frames go through a socket of packets ([`Way::frames`]), whose other end is the
//! machine's port at the network's switch. Here is decided what of the machine's frames is whose:
//!
//! 1. *What is for the gateway's card is ours*, and so is a question for one of our addresses (ARP) and one for an
//!    address (DHCP), which go to all. No switch sees them.
//! 2. *Everything else is the neighbours'*. Who may say what there, the switch decides: nothing that the machine sends
//!    is believed here.
//! 3. *What comes from there goes to the machine as it is.* It cannot pretend to be the gateway: the switch lets nobody
//!    send with an address that is not his.
//!
//! A frame in the socket has virtio's header before it, as that of a pod has. Nobody has made the checksum of what
//! comes from a machine, so the header asks for it ([`interface::send_unsummed`]): a machine does not look, and the
//! kernel of a pod's host takes it for good.
//!
//! The switch may end, and another be started. Whoever starts it attaches the machine to it, and sends what leads there
//! over [`Way::bell`], a socket of datagrams with a place in the file system.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg};

use crate::addresses::Addresses;
use crate::cable::Output;
use crate::wire::{ETHERNET_BYTES, IPV4, protocol};
use crate::{arp, dhcp, interface};

/// What leads to the neighbours.
#[derive(Debug)]
pub struct Way {
    /// Frames, each with a header of virtio's.
    pub frames: OwnedFd,
    /// By what the port at the switch lasts: nothing is said over it.
    pub connection: OwnedFd,
    /// Where another switch's frames, names and connection are sent, in this order.
    pub bell: OwnedFd,
}

/// Descriptors that come over the bell.
const DESCRIPTORS: usize = 3;

/// The neighbours, as a server has them.
#[derive(Debug)]
pub(crate) struct Neighbours {
    frames: Option<OwnedFd>,
    /// See [`Way`].
    connection: OwnedFd,
    bell: OwnedFd,
    /// There may be frames.
    pub is_ready: bool,
    /// A frame that is sent.
    sent: Vec<u8>,
}

impl Neighbours {
    pub fn new(way: Way) -> Self {
        let Way { frames, connection, bell } = way;
        let sent = Vec::new();
        Self { frames: Some(frames), connection, bell, is_ready: true, sent }
    }

    /// The way to the switch, if there is one.
    pub fn frames(&self) -> Option<BorrowedFd<'_>> {
        self.frames.as_ref().map(AsFd::as_fd)
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The switch has gone, if that is not said of one before.
    pub fn lose(&mut self) {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let is_there = |frames| matches!(recv(frames, &mut [0][..], flags), Err(Errno::AGAIN));
        if !self.frames().is_some_and(is_there) {
            self.frames = None;
            self.is_ready = false;
        }
    }

    /// Sends a frame of the machine's to them, or loses it, as a wire does.
    pub fn send(&mut self, frame: &[u8]) {
        let Some(frames) = &self.frames else { return };
        self.sent.clear();
        self.sent.extend_from_slice(frame);
        interface::send_unsummed(frames.as_fd(), &mut self.sent);
    }

    /// Takes what leads to another switch, if it is there: then returns the socket on which names are told.
    pub fn hear_bell(&mut self) -> Option<OwnedFd> {
        let mut names = None;
        while let Some([frames, told, connection]) = receive_three(self.bell.as_fd()) {
            self.frames = Some(frames);
            self.connection = connection;
            self.is_ready = true;
            names = Some(told);
        }
        names
    }
}

/// What comes next over the bell. What is something else is passed over.
fn receive_three(bell: BorrowedFd<'_>) -> Option<[OwnedFd; DESCRIPTORS]> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let pieces = &mut [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        recvmsg(bell, pieces, &mut ancillary, flags).ok()?;
        let mut files = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                files.extend(some);
            }
        }
        if let Ok(three) = files.try_into() {
            return Some(three);
        }
    }
}

/// Whether a frame of the machine's is for us and not for its neighbours.
pub(crate) fn is_ours(frame: &[u8], ours: [u8; 6], addresses: &Addresses) -> bool {
    let Some((header, packet)) = frame.split_first_chunk::<ETHERNET_BYTES>() else { return true };
    if header[0] & 1 == 0 {
        return header[..6] == ours;
    }
    match [header[12], header[13]] {
        arp::KIND => asked_for(packet).is_some_and(|address| addresses.is_ours(address)),
        IPV4 => destination_port(packet) == Some(dhcp::SERVER_PORT),
        _ => false,
    }
}

/// The address that is asked for (RFC 826).
fn asked_for(question: &[u8]) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(*question.get(24..)?.first_chunk::<4>()?))
}

/// The destination port of a datagram of UDP in a packet.
fn destination_port(packet: &[u8]) -> Option<u16> {
    let bytes = usize::from(packet.first()? & 15) * 4;
    let port = packet.get(bytes + 2..)?.first_chunk::<2>()?;
    (*packet.get(9)? == protocol::UDP).then_some(u16::from_be_bytes(*port))
}

/// Receives frames for the machine, as many as there is room for, and so many at most.
pub(crate) fn receive(neighbours: &mut Neighbours, output: &mut Output, most: usize) {
    for _ in 0..most {
        let Some(frames) = neighbours.frames().filter(|_| output.has_room()) else { return };
        if output.receive(frames) == interface::Received::Nothing {
            neighbours.is_ready = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];
    const ALL: [u8; 6] = [0xff; 6];

    fn frame(to: [u8; 6], kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&to[..], &[0x52, 0x56, 10, 89, 1, 5], &kind, packet].concat()
    }

    #[test]
    fn what_is_for_the_gateway_is_ours() {
        let addresses = crate::tests::addresses();
        let check = |frame: &[u8], expected| {
            assert_eq!(is_ours(frame, OURS, &addresses), expected, "{frame:x?}");
        };
        let question = |wanted: Ipv4Addr| {
            let mut question = vec![0; 28];
            question[24..].copy_from_slice(&wanted.octets());
            question
        };
        let datagram = |port: u16| {
            let mut packet = vec![0; 28];
            (packet[0], packet[9]) = (0x45, protocol::UDP);
            packet[22..24].copy_from_slice(&port.to_be_bytes());
            packet
        };
        check(&frame(OURS, IPV4, &datagram(9)), true);
        check(&frame([0x52, 0x56, 10, 89, 1, 6], IPV4, &datagram(9)), false);
        check(&frame(ALL, arp::KIND, &question(addresses.gateway)), true);
        check(&frame(ALL, arp::KIND, &question([10, 0, 2, 77].into())), false);
        check(&frame(ALL, IPV4, &datagram(67)), true);
        check(&frame(ALL, IPV4, &datagram(5353)), false);
        check(&frame([0x33, 0x33, 0, 0, 0, 1], [0x86, 0xdd], &[0; 40]), false);
        // What is cut off is nobody's question.
        check(&frame(ALL, arp::KIND, &[0; 20]), false);
        check(&frame(ALL, IPV4, &[0x4f; 20]), false);
        check(&ALL, true);
    }
}

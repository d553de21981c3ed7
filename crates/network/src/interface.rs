//! Frames on a packet socket (packet(7)) that is bound to one of two interfaces (veth(4)), of which the guest has the
//! other. Each comes with a header of virtio's, which says what the kernel has left to a card: a checksum that is not
//! there yet, a packet that is to be taken to pieces.
//!
//! What comes is taken as the cable of a machine has it: nobody looks at checksums. For what goes there, the header
//! asks the kernel for the checksum of TCP, which it does not make either: the other end takes it for good.
//!
//! The interface may be down. What is sent then is lost.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};

use crate::wire::{ETHERNET_BYTES, IPV4, protocol};

/// The header: flags, kind of segmentation, bytes of headers, bytes of a segment, where what the checksum is of begins,
/// where in that it is (virtio, `struct virtio_net_hdr`).
const HEADER_BYTES: usize = 10;

/// There is a checksum to be made (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
const NEEDS_CHECKSUM: u8 = 1;

/// Kinds of segmentation: none, and of TCP, which may have a mark for congestion.
const WHOLE: u8 = 0;
const OF_TCP: u8 = 1;
const WITH_MARK: u8 = 0x80;

/// Bytes of a header of TCP without options, and where in it the checksum is.
const TCP_BYTES: usize = 20;
const TCP_CHECKSUM_OFFSET: usize = 16;

/// The same of UDP.
const UDP_BYTES: usize = 8;
const UDP_CHECKSUM_OFFSET: usize = 6;

/// The type of IPv6's frames.
const IPV6: [u8; 2] = [0x86, 0xdd];

/// What came of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// A frame of so many bytes.
    Frame(usize),
    /// What is no frame for us, or word that the interface was set down: there may be more.
    Nonsense,
    /// Nothing is there now.
    Nothing,
}

/// Receives a frame.
pub fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> Received {
    let (mut header, most) = ([0; HEADER_BYTES], room.len());
    let pieces = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(room)];
    let nothing = &mut RecvAncillaryBuffer::default();
    let message = match recvmsg(socket, pieces, nothing, RecvFlags::DONTWAIT) {
        Ok(message) => message,
        Err(Errno::AGAIN) => return Received::Nothing,
        Err(_) => return Received::Nonsense,
    };
    let is_cut = message.flags.contains(ReturnFlags::TRUNC);
    // A large packet of TCP is one; others would be several datagrams.
    let is_one = matches!(header[1] & !WITH_MARK, WHOLE | OF_TCP);
    let length = message.bytes.saturating_sub(HEADER_BYTES);
    match (ETHERNET_BYTES..=most).contains(&length) && is_one && !is_cut {
        true => Received::Frame(length),
        false => Received::Nonsense,
    }
}

/// Sends a frame; false if it has to wait. What the host refuses is lost, as on a wire.
pub fn send(socket: BorrowedFd<'_>, frame: &mut [u8]) -> bool {
    let header = header(frame);
    let pieces = &[IoSlice::new(&header), IoSlice::new(frame)];
    let nothing = &mut SendAncillaryBuffer::default();
    !matches!(sendmsg(socket, pieces, nothing, SendFlags::DONTWAIT), Err(Errno::AGAIN))
}

/// Sends a frame of a machine's, in which no checksum of TCP or UDP has been made, or loses it.
pub fn send_unsummed(socket: BorrowedFd<'_>, frame: &mut [u8]) {
    let header = unsummed(frame).unwrap_or_default();
    let pieces = &[IoSlice::new(&header), IoSlice::new(frame)];
    // As on a wire: who has no room loses it.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), flags);
}

/// The header for such a frame, in which the part of the checksum is set that is not of the segment; none if it has no
/// such checksum, or is a piece of a packet: then the guest has made it.
fn unsummed(frame: &mut [u8]) -> Option<[u8; HEADER_BYTES]> {
    let (ethernet, packet) = frame.split_first_chunk_mut::<ETHERNET_BYTES>()?;
    let (kind, ends, ip_bytes) = match [ethernet[12], ethernet[13]] {
        IPV4 => {
            let ip = packet.first_chunk::<20>()?;
            let is_whole = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0;
            (Some(ip[9]).filter(|_| is_whole)?, 12..20, usize::from(ip[0] & 0xf) * 4)
        }
        IPV6 => (packet.first_chunk::<40>()?[6], 8..40, 40),
        _ => return None,
    };
    let (bytes, offset) = match kind {
        protocol::TCP => (TCP_BYTES, TCP_CHECKSUM_OFFSET),
        protocol::UDP => (UDP_BYTES, UDP_CHECKSUM_OFFSET),
        _ => return None,
    };
    let length = packet.len().checked_sub(ip_bytes).filter(|length| *length >= bytes)?;
    let words = packet[ends].chunks_exact(2);
    let words = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum = words.sum::<u32>() + u32::from(kind) + length as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let at = ip_bytes + offset;
    packet[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    let mut header = [0; HEADER_BYTES];
    header[0] = NEEDS_CHECKSUM;
    let begins = (ETHERNET_BYTES + ip_bytes) as u16;
    header[2..4].copy_from_slice(&(begins + bytes as u16).to_ne_bytes());
    header[6..8].copy_from_slice(&begins.to_ne_bytes());
    header[8..10].copy_from_slice(&(offset as u16).to_ne_bytes());
    Some(header)
}

/// The header for a frame of ours. In one of TCP's, that part of the checksum is set that the kernel does not make: the
/// sum of what is not in the segment.
fn header(frame: &mut [u8]) -> [u8; HEADER_BYTES] {
    let is_tcp = frame.get(12..14) == Some(&IPV4[..]) && frame.get(23) == Some(&protocol::TCP);
    // Our datagrams have theirs.
    is_tcp.then(|| unsummed(frame)).flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// What goes through a packet socket, through a socket of datagrams.
    fn pair() -> (UnixDatagram, UnixDatagram) {
        UnixDatagram::pair().unwrap()
    }

    fn frame(protocol: u8) -> Vec<u8> {
        let mut frame = vec![0xff; 12];
        frame.extend(IPV4);
        frame
            .extend([0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 2, 2, 10, 0, 2, 15]);
        frame.extend([0; 24]);
        frame
    }

    #[test]
    fn a_checksum_of_tcp_is_begun() {
        let (ours, theirs) = pair();
        assert!(send(ours.as_fd(), &mut frame(protocol::TCP)));
        let mut got = [0; 256];
        let length = theirs.recv(&mut got).unwrap();
        assert_eq!(length, HEADER_BYTES + frame(protocol::TCP).len());
        // Of 44 bytes of a packet, 24 are the segment.
        let sum = (0x0a00 + 0x0202 + 0x0a00 + 0x020f + 6 + 24u16).to_be_bytes();
        let at = HEADER_BYTES + ETHERNET_BYTES + 20 + TCP_CHECKSUM_OFFSET;
        assert_eq!(got[at..at + 2], sum);
        let word = |at: usize| u16::from_ne_bytes([got[at], got[at + 1]]);
        assert_eq!((got[0], got[1], word(2), word(4)), (NEEDS_CHECKSUM, WHOLE, 54, 0));
        assert_eq!((word(6), word(8)), (34, 16));
    }

    #[test]
    fn checksums_of_a_machine_are_begun() {
        let mut datagram = frame(protocol::UDP);
        let header = unsummed(&mut datagram).unwrap();
        assert_eq!((header[0], header[2], header[6], header[8]), (NEEDS_CHECKSUM, 42, 34, 6));
        let sum = (0x0a00 + 0x0202 + 0x0a00 + 0x020f + 17 + 24u16).to_be_bytes();
        assert_eq!(datagram[40..42], sum);
        // What a piece of a packet has there is no header.
        let mut piece = frame(protocol::TCP);
        piece[20] = 0x20;
        assert_eq!(unsummed(&mut piece), None);
        let mut six = [vec![0xff; 12], IPV6.to_vec(), vec![0; 60]].concat();
        six[20] = protocol::TCP;
        assert_eq!(unsummed(&mut six).map(|header| (header[2], header[6])), Some((74, 54)));
        // Nothing that is cut off is read beyond its end.
        for length in 0..six.len() {
            assert_eq!(unsummed(&mut six[..length]), None, "{length}");
        }
        let mut long = frame(protocol::UDP);
        long[14] = 0x4f;
        assert_eq!(unsummed(&mut long), None);
    }

    #[test]
    fn nothing_is_asked_for_what_has_its_checksum() {
        let other = [vec![0xff; 14], vec![0; 40]].concat();
        let short = frame(protocol::TCP)[..40].to_vec();
        for mut frame in [frame(protocol::UDP), other, short, vec![0; 3]] {
            let before = frame.clone();
            assert_eq!(header(&mut frame), [0; HEADER_BYTES]);
            assert_eq!(frame, before);
        }
    }

    #[test]
    fn what_is_no_frame_is_lost() {
        let (ours, theirs) = pair();
        let mut room = [0; 64];
        assert_eq!(receive(ours.as_fd(), &mut room), Received::Nothing);
        let mut check = |kind: u8, length: usize, expected| {
            let mut bytes = vec![0; HEADER_BYTES];
            bytes[1] = kind;
            bytes.resize(HEADER_BYTES + length, 7);
            theirs.send(&bytes).unwrap();
            assert_eq!(receive(ours.as_fd(), &mut room), expected, "{kind} {length}");
        };
        check(WHOLE, 60, Received::Frame(60));
        check(OF_TCP | WITH_MARK, 64, Received::Frame(64));
        // Datagrams of one size, which the kernel would have taken apart.
        check(5, 60, Received::Nonsense);
        check(WHOLE, 65, Received::Nonsense);
        check(WHOLE, 13, Received::Nonsense);
        assert_eq!(receive(ours.as_fd(), &mut room), Received::Nothing);
    }
}

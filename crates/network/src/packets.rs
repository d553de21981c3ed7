//! Headers of packets that the server makes itself, without smoltcp.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::cable::Output;
use crate::wire::{IPV4, protocol};

/// Bytes of an IPv4 header without options.
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// What a packet of IPv4 is, if it is one that is whole.
pub struct Packet<'a> {
    pub protocol: u8,
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
    /// With options.
    pub header: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<IP_BYTES>()?;
        let header_bytes = usize::from(header[0] & 0xf) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        // Neither the first fragment of several nor another.
        let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        if header[0] >> 4 != 4 || header_bytes < IP_BYTES || is_fragment {
            return None;
        }
        let address =
            |at| Ipv4Addr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let payload = bytes.get(header_bytes..total)?;
        let (protocol, from, to) = (header[9], address(12), address(16));
        Some(Self { protocol, from, to, header: &bytes[..header_bytes], payload })
    }

    /// The ports of a packet of TCP or UDP, and where it goes.
    pub fn ends(&self) -> Option<(SocketAddrV4, SocketAddrV4)> {
        let [a, b, c, d] = *self.payload.first_chunk()?;
        let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Some((SocketAddrV4::new(self.from, from), SocketAddrV4::new(self.to, to)))
    }

    /// What a datagram carries.
    pub fn datagram(&self) -> Option<&'a [u8]> {
        let header = self.payload.first_chunk::<UDP_BYTES>()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        self.payload.get(UDP_BYTES..length)
    }
}

/// Add a datagram for the guest.
pub fn add_datagram(output: &mut Output, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
    let length = UDP_BYTES + bytes.len();
    add(output, protocol::UDP, *from.ip(), *to.ip(), length, |payload| {
        payload[0..2].copy_from_slice(&from.port().to_be_bytes());
        payload[2..4].copy_from_slice(&to.port().to_be_bytes());
        payload[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        // It needs no checksum over IPv4 (RFC 768).
        payload[6..8].fill(0);
        payload[8..].copy_from_slice(bytes);
    });
}

/// Add an echo reply for the guest, made of what follows the checksum in it.
pub fn add_echo_reply(output: &mut Output, from: Ipv4Addr, to: Ipv4Addr, rest: &[u8]) {
    add(output, protocol::ICMP, from, to, 4 + rest.len(), |payload| {
        payload[..4].fill(0);
        payload[4..].copy_from_slice(rest);
        let sum = checksum(payload);
        payload[2..4].copy_from_slice(&sum.to_be_bytes());
    });
}

/// Tell the guest that this packet of its own may not go where it should (RFC 792: destination unreachable;
/// RFC 1812, 5.2.7.1: communication administratively prohibited).
pub fn add_prohibited(output: &mut Output, packet: &Packet<'_>, gateway: Ipv4Addr) {
    const UNREACHABLE: u8 = 3;
    const PROHIBITED: u8 = 13;
    /// Bytes of the type, the code, the checksum and what is not used.
    const HEADER_BYTES: usize = 8;
    let shown = &packet.payload[..packet.payload.len().min(8)];
    let length = HEADER_BYTES + packet.header.len() + shown.len();
    add(output, protocol::ICMP, gateway, packet.from, length, |payload| {
        payload[..HEADER_BYTES].copy_from_slice(&[UNREACHABLE, PROHIBITED, 0, 0, 0, 0, 0, 0]);
        let (header, rest) = payload[HEADER_BYTES..].split_at_mut(packet.header.len());
        header.copy_from_slice(packet.header);
        rest.copy_from_slice(shown);
        let sum = checksum(payload);
        payload[2..4].copy_from_slice(&sum.to_be_bytes());
    });
}

/// Add a segment of TCP for the guest, which looks at no checksum.
pub fn add_segment(output: &mut Output, from: Ipv4Addr, to: Ipv4Addr, segment: &[u8]) {
    add(output, protocol::TCP, from, to, segment.len(), |payload| {
        payload.copy_from_slice(segment);
    });
}

/// Add a packet of IPv4; one that would be too long is lost.
fn add(
    output: &mut Output,
    protocol: u8,
    from: Ipv4Addr,
    to: Ipv4Addr,
    payload_bytes: usize,
    fill: impl FnOnce(&mut [u8]),
) {
    const LIFE: u8 = 64;
    let length = IP_BYTES + payload_bytes;
    let Ok(total) = u16::try_from(length) else { return };
    output.add(IPV4, length, |bytes| {
        let (header, payload) = bytes.split_at_mut(IP_BYTES);
        header.fill(0);
        header[0] = 0x45;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[6] = 0x40; // not to be fragmented
        header[8] = LIFE;
        header[9] = protocol;
        header[12..16].copy_from_slice(&from.octets());
        header[16..20].copy_from_slice(&to.octets());
        let sum = checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        fill(payload);
    });
}

/// The Internet checksum (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    let (pairs, last) = bytes.as_chunks::<2>();
    let sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    let mut sum = sum + last.first().map_or(0, |byte| u64::from(*byte) << 8);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

//! What a frame is, from its first bytes.
//!
//! The constraints:
//!
//! 1. *Total and bounded.* Any bytes have an answer; every loop is over at most [`limits::HEAD_BYTES`] bytes.
//! 2. *One meaning.* What a rule sees is what the receiver will see. So a frame is refused where receivers differ,
//!    or where what decides comes later: a tag of a VLAN, headers that go on after what is looked at (RFC 7112), a
//!    fragment that could overwrite the ports or flags of the first (RFC 1858, RFC 3128), neighbour discovery in
//!    fragments (RFC 6980), and packets that name the next stops of their way (RFC 7126, 4.3; RFC 5095).
//! 3. *Lengths are compared with the frame's*, so that a packet does not end after its frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::Mac;
use crate::counters::Reason;
use crate::limits;

/// A frame of Ethernet as it is submitted.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its first [`limits::HEAD_BYTES`] bytes, or all if it is shorter. More are not looked at.
    pub head: &'a [u8],
    /// Bytes of the whole frame, without a checksum of its own.
    pub bytes: u32,
}

/// Kinds of frames.
pub mod ethertype {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const IPV6: u16 = 0x86dd;
    /// Tags of VLANs: customers', providers', and two that were used before those.
    pub const TAGS: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
    /// What is less is a length (IEEE 802.3).
    pub const LEAST: u16 = 0x0600;
}

/// Protocols above IP, and extension headers of IPv6.
pub mod protocol {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const AUTHENTICATION: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const DESTINATION: u8 = 60;
}

/// Types of ICMPv6 (RFC 4443, RFC 4861, RFC 2710, RFC 3810).
pub mod icmpv6 {
    pub const LISTENER_REPORT: u8 = 131;
    pub const LISTENER_DONE: u8 = 132;
    pub const ROUTER_SOLICITATION: u8 = 133;
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    pub const REDIRECT: u8 = 137;
    pub const LISTENER_REPORT_2: u8 = 143;
}

/// A frame that makes sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    pub source: Mac,
    pub destination: Mac,
    pub ethertype: u16,
    /// Of the whole frame.
    pub bytes: u32,
    pub body: Body,
}

/// What is in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    Arp(Arp),
    Ip(Ip),
    Other,
}

/// ARP for IPv4 over Ethernet (RFC 826).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp {
    pub is_request: bool,
    pub sender_mac: Mac,
    pub sender: Ipv4Addr,
    pub target: Ipv4Addr,
}

/// A packet of IPv4 or IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ip {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// After all extension headers.
    pub protocol: u8,
    pub transport: Transport,
}

/// The header after IP's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP's or UDP's ports, and whether it opens a connection of TCP: SYN without ACK.
    Ports { source: u16, destination: u16, opens: bool },
    /// A type of ICMP or ICMPv6.
    Icmp(u8),
    /// Neighbour discovery.
    Neighbour(Neighbour),
    /// A fragment that is not the first: there is none.
    Later,
    /// None that is known.
    Other,
}

/// What neighbour discovery says of its sender (RFC 4861).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    pub kind: u8,
    /// Whom a solicitation looks for, or an advertisement is about.
    pub target: Option<Ipv6Addr>,
    /// The link-layer address of the sender or the target.
    pub link: Option<Mac>,
}

/// A slice whose every look may fail.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn array<const N: usize>(self, at: usize) -> Result<[u8; N], Reason> {
        let rest = self.0.get(at..).ok_or(Reason::Malformed)?;
        rest.first_chunk().copied().ok_or(Reason::Malformed)
    }

    fn byte(self, at: usize) -> Result<u8, Reason> {
        self.0.get(at).copied().ok_or(Reason::Malformed)
    }

    fn word(self, at: usize) -> Result<u16, Reason> {
        self.array(at).map(u16::from_be_bytes)
    }

    fn mac(self, at: usize) -> Result<Mac, Reason> {
        self.array(at).map(Mac)
    }

    fn ipv4(self, at: usize) -> Result<Ipv4Addr, Reason> {
        self.array::<4>(at).map(Ipv4Addr::from)
    }

    fn ipv6(self, at: usize) -> Result<Ipv6Addr, Reason> {
        self.array::<16>(at).map(Ipv6Addr::from)
    }

    fn from(self, at: usize) -> Result<Self, Reason> {
        self.0.get(at..).map(Self).ok_or(Reason::Malformed)
    }
}

/// A condition that must hold.
fn must(holds: bool) -> Result<(), Reason> {
    holds.then_some(()).ok_or(Reason::Malformed)
}

/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;

impl Packet {
    /// What a frame is.
    pub fn parse(frame: &Frame<'_>) -> Result<Self, Reason> {
        if frame.bytes > limits::FRAME_BYTES {
            return Err(Reason::TooLong);
        }
        let known = limits::HEAD_BYTES.min(frame.bytes as usize);
        let head = Bytes(&frame.head[..frame.head.len().min(known)]);
        // Less than could be seen is no head.
        must(head.0.len() == known)?;
        let (destination, source) = (head.mac(0)?, head.mac(6)?);
        let ethertype = head.word(12)?;
        if ethertype::TAGS.contains(&ethertype) {
            return Err(Reason::Tagged);
        }
        must(!source.is_group())?;
        let packet = head.from(ETHERNET_BYTES)?;
        let room = frame.bytes as usize - ETHERNET_BYTES;
        let body = match ethertype {
            ethertype::ARP => Body::Arp(arp(packet)?),
            ethertype::IPV4 => Body::Ip(ipv4(packet, room)?),
            ethertype::IPV6 => Body::Ip(ipv6(packet, room)?),
            _ => Body::Other,
        };
        Ok(Self { source, destination, ethertype, bytes: frame.bytes, body })
    }
}

fn arp(packet: Bytes<'_>) -> Result<Arp, Reason> {
    /// Ethernet, IPv4, and the lengths of their addresses.
    const KINDS: [u8; 6] = [0, 1, 8, 0, 6, 4];
    must(packet.array(0)? == KINDS)?;
    let operation = packet.word(6)?;
    must(operation == 1 || operation == 2)?;
    let (sender_mac, sender) = (packet.mac(8)?, packet.ipv4(14)?);
    Ok(Arp { is_request: operation == 1, sender_mac, sender, target: packet.ipv4(24)? })
}

/// What IP says about what follows it.
struct Payload {
    protocol: u8,
    /// Bytes of it, of which those that are not looked at are a part.
    length: usize,
    /// Where it lies in the whole packet, in bytes, and whether more follows.
    offset: usize,
    more: bool,
}

impl Payload {
    fn is_whole(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// The header of the protocol above.
    fn transport(&self, bytes: Bytes<'_>, is_ipv6: bool) -> Result<Transport, Reason> {
        // The largest packet that can be put together.
        must(self.offset + self.length <= usize::from(u16::MAX))?;
        must(!self.more || self.length.is_multiple_of(8))?;
        if self.offset > 0 {
            // It would overwrite the flags of the first (RFC 3128).
            must(self.protocol != protocol::TCP || self.offset > 8)?;
            return Ok(Transport::Later);
        }
        let seen = Bytes(&bytes.0[..bytes.0.len().min(self.length)]);
        match (self.protocol, is_ipv6) {
            (protocol::TCP, _) => tcp(seen),
            (protocol::UDP, _) => udp(seen, self.length, self.is_whole()),
            (protocol::ICMP, false) => seen.array::<4>(0).map(|it| Transport::Icmp(it[0])),
            (protocol::ICMPV6, true) => icmpv6(seen, self),
            _ => Ok(Transport::Other),
        }
    }
}

fn tcp(segment: Bytes<'_>) -> Result<Transport, Reason> {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let header: [u8; 20] = segment.array(0)?;
    must(header[12] >> 4 >= 5)?;
    let opens = header[13] & (SYN | ACK) == SYN;
    Ok(Transport::Ports { source: segment.word(0)?, destination: segment.word(2)?, opens })
}

fn udp(datagram: Bytes<'_>, length: usize, is_whole: bool) -> Result<Transport, Reason> {
    const HEADER_BYTES: usize = 8;
    let (source, destination) = (datagram.word(0)?, datagram.word(2)?);
    let said = usize::from(datagram.word(4)?);
    must(datagram.0.len() >= HEADER_BYTES && said >= HEADER_BYTES)?;
    must(!is_whole || said <= length)?;
    Ok(Transport::Ports { source, destination, opens: false })
}

fn ipv4(packet: Bytes<'_>, room: usize) -> Result<Ip, Reason> {
    const HEADER_BYTES: usize = 20;
    let first = packet.byte(0)?;
    let header = usize::from(first & 15) * 4;
    must(first >> 4 == 4 && header >= HEADER_BYTES)?;
    let total = usize::from(packet.word(2)?);
    must(total >= header && total <= room)?;
    let place = packet.word(6)?;
    let (offset, more) = (usize::from(place & 0x1fff) * 8, place & 0x2000 != 0);
    let protocol = packet.byte(9)?;
    let (source, destination) = (packet.ipv4(12)?, packet.ipv4(16)?);
    let options = packet.0.get(HEADER_BYTES..header).ok_or(Reason::Malformed)?;
    look_at_options(options)?;
    let payload = Payload { protocol, length: total - header, offset, more };
    let transport = payload.transport(packet.from(header)?, false)?;
    Ok(Ip { source: source.into(), destination: destination.into(), protocol, transport })
}

/// Refuse options that say which way the packet goes (RFC 791, 3.1).
fn look_at_options(mut options: &[u8]) -> Result<(), Reason> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const LOOSE_ROUTE: u8 = 131;
    const STRICT_ROUTE: u8 = 137;
    while let [kind, rest @ ..] = options {
        options = match (*kind, rest.first()) {
            (END, _) => return Ok(()),
            (NOTHING, _) => rest,
            (LOOSE_ROUTE | STRICT_ROUTE, _) => return Err(Reason::SourceRouted),
            (_, Some(length @ 2..)) => {
                options.get(usize::from(*length)..).ok_or(Reason::Malformed)?
            }
            _ => return Err(Reason::Malformed),
        };
    }
    Ok(())
}

fn ipv6(packet: Bytes<'_>, room: usize) -> Result<Ip, Reason> {
    const HEADER_BYTES: usize = 40;
    must(packet.byte(0)? >> 4 == 6)?;
    let length = usize::from(packet.word(4)?);
    must(HEADER_BYTES + length <= room)?;
    let (source, destination) = (packet.ipv6(8)?, packet.ipv6(24)?);
    let protocol = packet.byte(6)?;
    let payload = Payload { protocol, length, offset: 0, more: false };
    let (payload, rest) = after_extensions(payload, packet.from(HEADER_BYTES)?)?;
    let transport = payload.transport(rest, true)?;
    let protocol = payload.protocol;
    Ok(Ip { source: source.into(), destination: destination.into(), protocol, transport })
}

/// Go over the extension headers (RFC 8200, 4), up to the protocol or to what other fragments continue.
fn after_extensions<'a>(
    mut payload: Payload,
    mut rest: Bytes<'a>,
) -> Result<(Payload, Bytes<'a>), Reason> {
    let mut is_fragment = false;
    for index in 0..=limits::MAX_EXTENSIONS {
        let bytes = match payload.protocol {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION => {
                // The first must be the first (RFC 8200, 4.1).
                must(payload.protocol != protocol::HOP_BY_HOP || index == 0)?;
                (usize::from(rest.byte(1)?) + 1) * 8
            }
            protocol::AUTHENTICATION => (usize::from(rest.byte(1)?) + 2) * 4,
            protocol::FRAGMENT => 8,
            _ => return Ok((payload, rest)),
        };
        must(index < limits::MAX_EXTENSIONS && bytes <= payload.length)?;
        let header: [u8; 8] = rest.array(0)?;
        match payload.protocol {
            protocol::ROUTING if header[3] != 0 => return Err(Reason::SourceRouted),
            protocol::FRAGMENT => {
                must(!is_fragment)?;
                is_fragment = true;
                let place = u16::from_be_bytes([header[2], header[3]]);
                (payload.offset, payload.more) = (usize::from(place & !7), place & 1 != 0);
            }
            _ => {}
        }
        (payload.protocol, payload.length) = (header[0], payload.length - bytes);
        // What follows in a later fragment is no header.
        if payload.offset > 0 {
            return Ok((payload, Bytes(&[])));
        }
        rest = rest.from(bytes)?;
    }
    Err(Reason::Malformed)
}

fn icmpv6(message: Bytes<'_>, payload: &Payload) -> Result<Transport, Reason> {
    use icmpv6::*;
    let [kind, ..] = message.array::<4>(0)?;
    if !(ROUTER_SOLICITATION..=REDIRECT).contains(&kind) {
        return Ok(Transport::Icmp(kind));
    }
    must(payload.is_whole())?;
    let (target, options) = match kind {
        ROUTER_SOLICITATION => (None, 8),
        NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT => (Some(message.ipv6(8)?), 24),
        // Only routers send them, with options that are nobody's address, or many.
        _ => return Ok(Transport::Neighbour(Neighbour { kind, target: None, link: None })),
    };
    let link = link_address(message, options, payload.length)?;
    Ok(Transport::Neighbour(Neighbour { kind, target, link }))
}

/// The one link-layer address in options of neighbour discovery (RFC 4861, 4.6.1).
fn link_address(message: Bytes<'_>, mut at: usize, end: usize) -> Result<Option<Mac>, Reason> {
    const SOURCE: u8 = 1;
    const TARGET: u8 = 2;
    let mut link = None;
    while at < end {
        let [kind, eights] = message.array(at)?;
        let bytes = usize::from(eights) * 8;
        must(bytes > 0 && at + bytes <= end)?;
        if kind == SOURCE || kind == TARGET {
            let address = message.mac(at + 2)?;
            must(bytes == 8 && link.is_none_or(|other| other == address))?;
            link = Some(address);
        }
        at += bytes;
    }
    Ok(link)
}

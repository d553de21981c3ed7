//! Rules: what a frame must look like, and what is done with it then.

use std::fmt;
use std::net::IpAddr;

use crate::address::{Mac, PortId, Prefix};
use crate::bucket::Rate;
use crate::packet::{Body, Packet, Transport, ethertype, protocol};

/// A direction, as the port's owner sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// What the port sends; at the uplink, what comes from the world.
    Transmit,
    /// What the port receives; at the uplink, what goes to the world.
    Receive,
}

/// Ports of TCP or UDP, from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last, which is not less.
    pub last: u16,
}

impl PortRange {
    fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

/// What a frame must look like: all that is said must hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pattern {
    /// The kind of frame.
    pub ethertype: Option<u16>,
    /// The protocol above IP.
    pub protocol: Option<u8>,
    /// Only fragments but the first, which have no ports.
    pub later_fragment: bool,
    /// Only what opens a connection of TCP.
    pub opens: bool,
    /// Where it comes from; for ARP, its sender.
    pub source: Option<Prefix>,
    /// Where it goes; for ARP, its target.
    pub destination: Option<Prefix>,
    /// The sender's port. A fragment that is not the first has none, so this never holds for it.
    pub source_ports: Option<PortRange>,
    /// The receiver's port, likewise.
    pub destination_ports: Option<PortRange>,
    /// The sender's Ethernet address.
    pub source_mac: Option<Mac>,
    /// The receiver's Ethernet address.
    pub destination_mac: Option<Mac>,
}

/// Why no frame can look like a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatternError {
    /// Ports without a protocol that has some.
    #[error("ports need `tcp` or `udp` in the same rule")]
    PortsOfNothing,
    /// A range that ends before it begins.
    #[error("the range of ports ends before it begins")]
    EmptyRange,
    /// `syn` is TCP's.
    #[error("`syn` needs `tcp` in the same rule")]
    SynOfNothing,
    /// A fragment that is not the first has neither ports nor flags.
    #[error("a later `fragment` has neither ports nor `syn`: they are in the first")]
    FragmentWithPorts,
    /// Addresses of both kinds, or of the other kind than the rule's.
    #[error("addresses of IPv4 and of IPv6 are never in one packet: write two rules")]
    MixedFamilies,
    /// A protocol, or a fragment, of what is no IP.
    #[error("only IPv4 and IPv6 have protocols and fragments")]
    ProtocolOfNothing,
    /// An address of IP in a frame of another kind.
    #[error("only ARP, IPv4 and IPv6 have such addresses")]
    AddressOfNothing,
    /// A kind of frame that is a length, or a tag.
    #[error("an ethertype is from 0x0600 to 0xffff, and no VLAN tag: those are always dropped")]
    NoEthertype,
    /// A rate out of bounds.
    #[error("a rate and its burst are from 1 byte to 1T; to allow nothing, write `drop`")]
    NoRate,
}

impl Pattern {
    /// Whether some frame can look like it.
    pub fn check(&self) -> Result<(), PatternError> {
        let has_ports = self.source_ports.is_some() || self.destination_ports.is_some();
        let fail = |wrong: bool, error| if wrong { Err(error) } else { Ok(()) };
        let protocol = self.protocol;
        let with_ports = matches!(protocol, Some(protocol::TCP | protocol::UDP));
        fail(has_ports && !with_ports, PatternError::PortsOfNothing)?;
        fail(self.opens && protocol != Some(protocol::TCP), PatternError::SynOfNothing)?;
        fail(self.later_fragment && (has_ports || self.opens), PatternError::FragmentWithPorts)?;
        let ranges = [self.source_ports, self.destination_ports];
        let is_empty = ranges.iter().flatten().any(|range| range.first > range.last);
        fail(is_empty, PatternError::EmptyRange)?;
        self.check_kind()
    }

    /// The kind of frame, and what only some kinds have.
    fn check_kind(&self) -> Result<(), PatternError> {
        let prefixes = [self.source, self.destination];
        let mut families = prefixes.iter().flatten().map(Prefix::is_ipv4);
        let family = families.next();
        if families.any(|other| Some(other) != family) {
            return Err(PatternError::MixedFamilies);
        }
        let Some(kind) = self.ethertype else { return Ok(()) };
        if kind < ethertype::LEAST || ethertype::TAGS.contains(&kind) {
            return Err(PatternError::NoEthertype);
        }
        let is_ip = kind == ethertype::IPV4 || kind == ethertype::IPV6;
        if (self.protocol.is_some() || self.later_fragment) && !is_ip {
            return Err(PatternError::ProtocolOfNothing);
        }
        match family {
            Some(_) if !is_ip && kind != ethertype::ARP => Err(PatternError::AddressOfNothing),
            Some(is_ipv4) if is_ipv4 == (kind == ethertype::IPV6) => {
                Err(PatternError::MixedFamilies)
            }
            _ => Ok(()),
        }
    }

    /// Whether a packet looks like it.
    pub(crate) fn matches(&self, packet: &Packet) -> bool {
        self.ethertype.is_none_or(|it| it == packet.ethertype)
            && self.source_mac.is_none_or(|it| it == packet.source)
            && self.destination_mac.is_none_or(|it| it == packet.destination)
            && self.matches_addresses(packet)
            && self.matches_transport(packet)
    }

    fn matches_addresses(&self, packet: &Packet) -> bool {
        let (source, destination) = match packet.body {
            Body::Ip(ip) => (ip.source, ip.destination),
            Body::Arp(arp) => (IpAddr::V4(arp.sender), IpAddr::V4(arp.target)),
            Body::Other => return self.source.is_none() && self.destination.is_none(),
        };
        self.source.is_none_or(|it| it.contains(source))
            && self.destination.is_none_or(|it| it.contains(destination))
    }

    fn matches_transport(&self, packet: &Packet) -> bool {
        let has_ports = self.source_ports.is_some() || self.destination_ports.is_some();
        let Body::Ip(ip) = packet.body else {
            return self.protocol.is_none() && !self.later_fragment && !self.opens && !has_ports;
        };
        if self.protocol.is_some_and(|it| it != ip.protocol) {
            return false;
        }
        match ip.transport {
            Transport::Ports { source, destination, opens } => {
                !self.later_fragment
                    && (opens || !self.opens)
                    && self.source_ports.is_none_or(|it| it.contains(source))
                    && self.destination_ports.is_none_or(|it| it.contains(destination))
            }
            Transport::Later => !has_ports && !self.opens,
            _ => !self.later_fragment && !has_ports && !self.opens,
        }
    }
}

/// What is done with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It goes on; no further rule is looked at.
    Accept,
    /// It is dropped.
    Drop,
    /// It goes to another port than its addresses say; no further rule is looked at.
    To(PortId),
    /// What is beyond the rate is dropped; with the rest it goes on at the next rule.
    Rate(Rate),
}

/// A pattern and an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What is done.
    pub action: Action,
    /// With which frames.
    pub pattern: Pattern,
}

impl Rule {
    /// Whether it can be kept to.
    pub fn check(&self) -> Result<(), PatternError> {
        match self.action {
            Action::Rate(rate) if !rate.is_possible() => Err(PatternError::NoRate),
            _ => self.pattern.check(),
        }
    }
}

/// The rules of a port, in the order in which they are looked at.
///
/// # As a text
///
/// A line is a rule: a direction, an action, and what the frame must look like, in any order. What follows a `#` is
/// a remark. The first rule that fits decides, but for `rate`, which only drops what is too much. If none fits, ARP
/// and IP are accepted and all else is dropped.
///
/// ```text
/// # A web server, which may send 10 MB a second to the world's resolvers and whomever else.
/// rx accept tcp dst-port 80
/// rx accept tcp dst-port 443 src 10.0.0.0/8
/// rx to vif 4 tcp dst-port 8000-8099
/// rx drop tcp syn
/// rx rate 100k burst 10k icmp
/// tx drop udp dst-port 53 dst 192.168.0.0/16
/// tx rate 10M
/// ```
///
/// | word | meaning |
/// | --- | --- |
/// | `tx`, `rx` | of what the port sends, or receives |
/// | `accept`, `drop` | the action |
/// | `to vif N`, `to uplink` | the action: it goes there instead |
/// | `rate N [burst N]` | the action: at most so many bytes a second; units are `k` to `T`, and `Ki` to `Ti` |
/// | `arp`, `ipv4`, `ipv6`, `ethertype 0x88cc` | the kind of frame |
/// | `tcp`, `udp`, `icmp`, `icmp6`, `protocol N` | the protocol above IP |
/// | `src PREFIX`, `dst PREFIX` | addresses; of ARP, its sender and its target |
/// | `src-port N`, `dst-port N-M` | ports of TCP or UDP |
/// | `src-mac MAC`, `dst-mac MAC` | addresses of Ethernet |
/// | `syn` | what opens a connection of TCP |
/// | `fragment` | fragments but the first; rules with ports never fit these |
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rules {
    /// What is done with what the port sends.
    pub transmit: Vec<Rule>,
    /// What is done with what the port is to receive.
    pub receive: Vec<Rule>,
}

impl Rules {
    /// Those of a direction.
    pub fn of(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Transmit => &self.transmit,
            Direction::Receive => &self.receive,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Transmit => "tx",
            Self::Receive => "rx",
        })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(to, "{}", self.first),
            false => write!(to, "{}-{}", self.first, self.last),
        }
    }
}

/// A number with the largest unit that it is a multiple of.
fn with_unit(number: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")];
    let fits = |(unit, _): &&(u64, &str)| number > 0 && number.is_multiple_of(*unit);
    match UNITS.iter().find(fits) {
        Some((unit, name)) => format!("{}{name}", number / unit),
        None => number.to_string(),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => to.write_str("accept"),
            Self::Drop => to.write_str("drop"),
            Self::To(port) => write!(to, "to {port}"),
            Self::Rate(rate) => {
                let speed = with_unit(rate.bytes_per_second);
                write!(to, "rate {speed} burst {}", with_unit(rate.burst_bytes))
            }
        }
    }
}

impl fmt::Display for Pattern {
    /// Each part with a space before it.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ethertype {
            Some(ethertype::ARP) => to.write_str(" arp")?,
            Some(ethertype::IPV4) => to.write_str(" ipv4")?,
            Some(ethertype::IPV6) => to.write_str(" ipv6")?,
            Some(other) => write!(to, " ethertype {other:#06x}")?,
            None => {}
        }
        match self.protocol {
            Some(protocol::TCP) => to.write_str(" tcp")?,
            Some(protocol::UDP) => to.write_str(" udp")?,
            Some(protocol::ICMP) => to.write_str(" icmp")?,
            Some(protocol::ICMPV6) => to.write_str(" icmp6")?,
            Some(other) => write!(to, " protocol {other}")?,
            None => {}
        }
        if self.later_fragment {
            to.write_str(" fragment")?;
        }
        if self.opens {
            to.write_str(" syn")?;
        }
        let part = |name: &str, value: Option<String>| {
            value.map(|value| format!(" {name} {value}")).unwrap_or_default()
        };
        to.write_str(&part("src", self.source.map(|it| it.to_string())))?;
        to.write_str(&part("src-port", self.source_ports.map(|it| it.to_string())))?;
        to.write_str(&part("dst", self.destination.map(|it| it.to_string())))?;
        to.write_str(&part("dst-port", self.destination_ports.map(|it| it.to_string())))?;
        to.write_str(&part("src-mac", self.source_mac.map(|it| it.to_string())))?;
        to.write_str(&part("dst-mac", self.destination_mac.map(|it| it.to_string())))
    }
}

impl fmt::Display for Rule {
    /// As in a text, but for the direction.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}{}", self.action, self.pattern)
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for direction in [Direction::Transmit, Direction::Receive] {
            self.of(direction).iter().try_for_each(|rule| writeln!(to, "{direction} {rule}"))?;
        }
        Ok(())
    }
}

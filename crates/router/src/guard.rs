//! Nobody speaks for another: what a port may say of itself.
//!
//! A VIF's frames are looked at before its rules are, so that no rule can allow more. The uplink may be anybody but
//! those who are here. What is allowed although the sender has no address yet: a DHCP client's requests (RFC 2131,
//! 4.1), ARP's probes (RFC 5227), and in IPv6 looking for duplicates of one's own address, for routers, and reports
//! of groups (RFC 4862, 5.4.2; RFC 4861, 4.1; RFC 3590).

use std::net::{IpAddr, Ipv4Addr};

use crate::address::Mac;
use crate::counters::Reason;
use crate::packet::{Arp, Body, Ip, Neighbour, Packet, Transport, icmpv6};
use crate::port::Interface;

/// Ports of DHCP (RFC 2131, 4.1; RFC 8415, 7.2).
mod dhcp {
    pub const SERVER: u16 = 67;
    pub const CLIENT: u16 = 68;
    pub const SERVER_6: u16 = 547;
}

/// Look at what a VIF sends.
pub fn check_own(packet: &Packet, sender: &Interface) -> Result<(), Reason> {
    if sender.is_trusted {
        return Ok(());
    }
    let mac = packet.source;
    if sender.mac != Some(mac) {
        return Err(Reason::SpoofedMac);
    }
    match &packet.body {
        Body::Arp(arp) => check_arp(arp, mac, sender),
        Body::Ip(ip) => {
            check_service(ip)?;
            check_neighbour(ip, mac, sender)?;
            let is_own = sender.has(ip.source) || may_have_no_address(ip);
            is_own.then_some(()).ok_or(Reason::SpoofedAddress)
        }
        Body::Other => Ok(()),
    }
}

fn check_arp(arp: &Arp, mac: Mac, sender: &Interface) -> Result<(), Reason> {
    let has = |address: Ipv4Addr| sender.has(IpAddr::V4(address));
    let is_probe = arp.is_request && arp.sender.is_unspecified() && has(arp.target);
    let is_own = arp.sender_mac == mac && (has(arp.sender) || is_probe);
    is_own.then_some(()).ok_or(Reason::SpoofedArp)
}

/// Only routers advertise themselves and redirect, and only servers answer clients of DHCP.
fn check_service(ip: &Ip) -> Result<(), Reason> {
    let is_rogue = match ip.transport {
        Transport::Neighbour(Neighbour { kind, .. }) => {
            kind == icmpv6::ROUTER_ADVERTISEMENT || kind == icmpv6::REDIRECT
        }
        Transport::Ports { source, .. } => {
            let server = if ip.source.is_ipv4() { dhcp::SERVER } else { dhcp::SERVER_6 };
            ip.protocol == crate::packet::protocol::UDP && source == server
        }
        _ => false,
    };
    if is_rogue { Err(Reason::RogueService) } else { Ok(()) }
}

fn check_neighbour(ip: &Ip, mac: Mac, sender: &Interface) -> Result<(), Reason> {
    let Transport::Neighbour(neighbour) = ip.transport else { return Ok(()) };
    let has_target = neighbour.target.is_some_and(|target| sender.has(IpAddr::V6(target)));
    let is_about_itself = match neighbour.kind {
        icmpv6::NEIGHBOUR_ADVERTISEMENT => has_target,
        // Somebody without an address looks for its own.
        icmpv6::NEIGHBOUR_SOLICITATION => has_target || !ip.source.is_unspecified(),
        _ => true,
    };
    let is_own = is_about_itself && neighbour.link.is_none_or(|link| link == mac);
    is_own.then_some(()).ok_or(Reason::SpoofedNeighbour)
}

/// Whether this is what somebody sends who has no address yet.
fn may_have_no_address(ip: &Ip) -> bool {
    match (ip.source, ip.transport) {
        (IpAddr::V4(source), Transport::Ports { source: from, destination: to, .. }) => {
            source.is_unspecified()
                && ip.protocol == crate::packet::protocol::UDP
                && ip.destination == IpAddr::V4(Ipv4Addr::BROADCAST)
                && (from, to) == (dhcp::CLIENT, dhcp::SERVER)
        }
        (IpAddr::V6(source), Transport::Neighbour(neighbour)) => {
            let asks = [icmpv6::ROUTER_SOLICITATION, icmpv6::NEIGHBOUR_SOLICITATION];
            source.is_unspecified() && neighbour.link.is_none() && asks.contains(&neighbour.kind)
        }
        (IpAddr::V6(source), Transport::Icmp(kind)) => {
            use icmpv6::{LISTENER_DONE, LISTENER_REPORT, LISTENER_REPORT_2};
            source.is_unspecified()
                && [LISTENER_REPORT, LISTENER_DONE, LISTENER_REPORT_2].contains(&kind)
        }
        _ => false,
    }
}

/// Look at what comes from outside, where nobody is who is here.
pub fn check_outside(
    packet: &Packet,
    has_mac: impl Fn(Mac) -> bool,
    has_address: impl Fn(IpAddr) -> bool,
) -> Result<(), Reason> {
    let fail = |wrong: bool, reason| if wrong { Err(reason) } else { Ok(()) };
    fail(has_mac(packet.source), Reason::SpoofedMac)?;
    match packet.body {
        Body::Arp(arp) => {
            let is_ours = has_mac(arp.sender_mac) || has_address(IpAddr::V4(arp.sender));
            fail(is_ours, Reason::SpoofedArp)
        }
        Body::Ip(ip) => {
            if let Transport::Neighbour(Neighbour { kind, target: Some(target), link }) =
                ip.transport
            {
                let is_claim = kind == icmpv6::NEIGHBOUR_ADVERTISEMENT;
                let is_ours = is_claim && has_address(IpAddr::V6(target));
                let is_ours = is_ours || link.is_some_and(&has_mac);
                fail(is_ours, Reason::SpoofedNeighbour)?;
            }
            fail(has_address(ip.source), Reason::SpoofedAddress)
        }
        Body::Other => Ok(()),
    }
}

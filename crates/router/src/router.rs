//! The router itself: from a frame to those who get it.
//!
//! A frame's way: what it is (`packet`), whether its sender may say so (`guard`), its sender's rules, who has its
//! destination, and each receiver's rules. Groups' frames go to everybody but the sender, except for what asks for one
//! address: that goes to whom it belongs to, or else to the uplink.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::address::{Mac, PortId};
use crate::bucket::{Rate, Time};
use crate::counters::{Counters, Reason, Tally};
use crate::guard;
use crate::limits;
use crate::packet::{Body, Frame, Neighbour, Packet, Transport, icmpv6};
use crate::port::{Interface, Port, Verdict};
use crate::rule::{Direction, PatternError, Rule, Rules};
use crate::turns::{Next, Turn, Turns};

/// Somebody who gets a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Who.
    pub port: PortId,
    /// What the copy's destination address of Ethernet has to become, if it was for somebody else.
    pub mac: Option<Mac>,
}

/// What becomes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<'a> {
    /// Who gets a copy.
    pub destinations: &'a [Destination],
    /// Why nobody does, or else why some do not.
    pub dropped: Option<Reason>,
}

/// Why a router is not configured so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// There is such a port already.
    #[error("there is {0} already: remove it first")]
    Exists(PortId),
    /// There is no such port.
    #[error("there is no {0}: add it first")]
    NoPort(PortId),
    /// There are too many.
    #[error("a router has at most {} VIFs: make another network", limits::MAX_VIFS)]
    TooManyPorts,
    /// A VIF has no address of Ethernet, or a group's.
    #[error("{0} needs an address of Ethernet of its own, such as 02:16:3e:00:00:01")]
    NoMac(PortId),
    /// Another port has the address.
    #[error("{1} has the address {0}: give each address to one port")]
    Taken(String, PortId),
    /// An address that is nobody's own.
    #[error("{0} cannot be a port's address: give one that is not a group's")]
    NoAddress(IpAddr),
    /// A port has too many addresses.
    #[error("{0} has more than {most} addresses", most = limits::MAX_ADDRESSES)]
    TooManyAddresses(PortId),
    /// A port has too many rules.
    #[error("more than {} rules in a direction: combine some", limits::MAX_RULES)]
    TooManyRules,
    /// A rule or rate cannot be kept to.
    #[error("{0}")]
    Pattern(#[from] PatternError),
}

/// The ports of a network, and what lies between them.
#[derive(Default, Debug)]
pub struct Router {
    ports: BTreeMap<PortId, Port>,
    macs: BTreeMap<Mac, PortId>,
    addresses: BTreeMap<IpAddr, PortId>,
    turns: Turns,
    /// How many frames were submitted.
    frames: u64,
    /// The destinations of the last frame.
    destinations: Vec<Destination>,
    /// Those whom its addresses mean, before their rules are asked.
    candidates: Vec<Destination>,
}

impl Router {
    /// One without ports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Add a port.
    pub fn add(
        &mut self,
        id: PortId,
        interface: Interface,
        now: Time,
    ) -> Result<(), ConfigurationError> {
        if self.ports.contains_key(&id) {
            return Err(ConfigurationError::Exists(id));
        }
        let vifs = self.ports.len() - usize::from(self.ports.contains_key(&PortId::Uplink));
        if vifs >= limits::MAX_VIFS && id != PortId::Uplink {
            return Err(ConfigurationError::TooManyPorts);
        }
        self.check(id, &interface)?;
        if let Some(mac) = interface.mac {
            self.macs.insert(mac, id);
        }
        for address in interface.addresses.iter().copied().chain(interface.link_local()) {
            self.addresses.insert(address, id);
        }
        self.turns.add(id, interface.rate, now);
        self.ports.insert(id, Port::new(interface));
        Ok(())
    }

    /// Whether a port can be added.
    fn check(&self, id: PortId, interface: &Interface) -> Result<(), ConfigurationError> {
        match interface.mac {
            None if id != PortId::Uplink => return Err(ConfigurationError::NoMac(id)),
            Some(mac) if mac.is_group() || mac == Mac([0; 6]) => {
                return Err(ConfigurationError::NoMac(id));
            }
            _ => {}
        }
        let taken = |what: String, by: &PortId| Err(ConfigurationError::Taken(what, *by));
        if let Some((mac, by)) = interface.mac.and_then(|mac| self.macs.get_key_value(&mac)) {
            return taken(mac.to_string(), by);
        }
        if interface.addresses.len() > limits::MAX_ADDRESSES {
            return Err(ConfigurationError::TooManyAddresses(id));
        }
        for address in interface.addresses.iter().copied().chain(interface.link_local()) {
            if is_of_many(address) || address.is_unspecified() {
                return Err(ConfigurationError::NoAddress(address));
            }
            if let Some(by) = self.addresses.get(&address) {
                return taken(address.to_string(), by);
            }
        }
        interface.rate.map_or(Ok(()), check_rate)
    }

    /// Remove a port. Its turn, if it has one, comes to nothing.
    pub fn remove(&mut self, id: PortId) -> Result<(), ConfigurationError> {
        self.ports.remove(&id).ok_or(ConfigurationError::NoPort(id))?;
        self.macs.retain(|_, port| *port != id);
        self.addresses.retain(|_, port| *port != id);
        self.turns.remove(id);
        Ok(())
    }

    fn port(&mut self, id: PortId) -> Result<&mut Port, ConfigurationError> {
        self.ports.get_mut(&id).ok_or(ConfigurationError::NoPort(id))
    }

    /// Have other rules for a port from the next frame on: all of them, or none if one is wrong.
    pub fn set_rules(
        &mut self,
        id: PortId,
        rules: &Rules,
        now: Time,
    ) -> Result<(), ConfigurationError> {
        for list in [&rules.transmit, &rules.receive] {
            if list.len() > limits::MAX_RULES {
                return Err(ConfigurationError::TooManyRules);
            }
            list.iter().try_for_each(Rule::check)?;
        }
        self.port(id)?.set_rules(rules, now);
        Ok(())
    }

    /// Have another rate for what a port sends.
    pub fn set_rate(
        &mut self,
        id: PortId,
        rate: Option<Rate>,
        now: Time,
    ) -> Result<(), ConfigurationError> {
        rate.map_or(Ok(()), check_rate)?;
        self.port(id)?.interface.rate = rate;
        self.turns.set_rate(id, rate, now);
        Ok(())
    }

    /// What a port has sent, received and lost.
    pub fn counters(&self, id: PortId) -> Option<&Counters> {
        self.ports.get(&id).map(|port| &port.counters)
    }

    /// What a port is configured as.
    pub fn interface(&self, id: PortId) -> Option<&Interface> {
        self.ports.get(&id).map(|port| &port.interface)
    }

    /// A port's rules, and the frames that each has matched.
    pub fn rules(&self, id: PortId) -> Vec<(Direction, Rule, Tally)> {
        self.ports.get(&id).map(|port| port.rules().collect()).unwrap_or_default()
    }

    /// A port has something to send; to say so more than once changes nothing.
    pub fn announce(&mut self, id: PortId) {
        self.turns.announce(id);
    }

    /// Whose turn it is.
    pub fn next_turn(&mut self, now: Time) -> Next {
        self.turns.next(now)
    }

    /// A turn is over: because it has no more room, or its port has nothing more to send.
    pub fn end_turn(&mut self, turn: Turn, has_more: bool) {
        self.turns.end(turn, has_more);
    }

    /// Decide about a frame of the port whose turn it is.
    pub fn submit(&mut self, turn: &mut Turn, frame: &Frame<'_>, now: Time) -> Decision<'_> {
        self.destinations.clear();
        self.candidates.clear();
        self.frames = self.frames.wrapping_add(1);
        let sender = turn.port();
        if let Some(port) = self.ports.get_mut(&sender) {
            port.counters.transmitted.add(frame.bytes);
        }
        let dropped = match self.find(sender, frame, now) {
            Ok(packet) => self.distribute(sender, &packet, now),
            Err(reason) => {
                if let Some(port) = self.ports.get_mut(&sender) {
                    port.counters.drop(reason, frame.bytes);
                }
                Some(reason)
            }
        };
        // To ask many is work, though they may not want it.
        self.turns.charge(turn, frame.bytes, self.candidates.len(), now);
        Decision { destinations: &self.destinations, dropped }
    }

    /// A destination of the last frame had no buffer for it.
    pub fn undelivered(&mut self, id: PortId, bytes: u32) {
        if let Some(port) = self.ports.get_mut(&id) {
            port.counters.received.take_back(bytes);
            port.counters.drop(Reason::NoBuffer, bytes);
        }
    }

    /// Find those whom a frame is for.
    fn find(&mut self, from: PortId, frame: &Frame<'_>, now: Time) -> Result<Packet, Reason> {
        let packet = Packet::parse(frame)?;
        let port = self.ports.get_mut(&from).ok_or(Reason::NoDestination)?;
        match from {
            PortId::Vif(_) => guard::check_own(&packet, &port.interface)?,
            PortId::Uplink => {
                let is_here = |port: Option<&PortId>| port.is_some_and(|it| *it != from);
                let has_mac = |mac| is_here(self.macs.get(&mac));
                guard::check_outside(&packet, has_mac, |ip| is_here(self.addresses.get(&ip)))?;
            }
        }
        match port.judge(Direction::Transmit, &packet, now) {
            Verdict::Drop(reason) => return Err(reason),
            Verdict::To(to) => self.redirect(to, &packet),
            Verdict::Nothing if packet.body == Body::Other => return Err(Reason::OtherProtocol),
            Verdict::Accept | Verdict::Nothing => self.route(from, &packet)?,
        }
        self.candidates.retain(|it| it.port != from);
        match self.candidates.is_empty() {
            true => Err(Reason::NoDestination),
            false => Ok(packet),
        }
    }

    /// A rule says who gets it.
    fn redirect(&mut self, to: PortId, packet: &Packet) {
        self.candidates.extend(self.destination(to, packet));
    }

    /// A port as the destination of a packet, which may have another address.
    fn destination(&self, port: PortId, packet: &Packet) -> Option<Destination> {
        let own = self.ports.get(&port)?.interface.mac;
        let mac = own.filter(|own| !packet.destination.is_group() && packet.destination != *own);
        Some(Destination { port, mac })
    }

    /// Its addresses say who gets it.
    fn route(&mut self, from: PortId, packet: &Packet) -> Result<(), Reason> {
        if packet.destination.is_group() {
            self.route_to_group(from, packet);
            return Ok(());
        }
        let address = match packet.body {
            Body::Ip(ip) => Some(ip.destination),
            _ => None,
        };
        let Some(to) = self.macs.get(&packet.destination).copied() else {
            // Nobody's: from here it is for outside. What comes from there may have only the right address of IP.
            let owner = address.and_then(|address| self.addresses.get(&address)).copied();
            let to = if from == PortId::Uplink { owner } else { Some(PortId::Uplink) };
            to.into_iter().for_each(|to| self.redirect(to, packet));
            // The uplink passes on what is not its own.
            self.candidates.iter_mut().filter(|it| it.port == PortId::Uplink).for_each(|it| {
                it.mac = None;
            });
            return Ok(());
        };
        let Some(port) = self.ports.get_mut(&to) else { return Err(Reason::NoDestination) };
        let has = |address| port.interface.has(address) || is_of_many(address);
        let is_its = to == PortId::Uplink || port.interface.is_trusted || address.is_none_or(has);
        if !is_its {
            return Err(Reason::NotItsAddress);
        }
        self.candidates.push(Destination { port: to, mac: None });
        Ok(())
    }

    /// Everybody gets it, or whom it asks for.
    fn route_to_group(&mut self, from: PortId, packet: &Packet) {
        let (asked, is_question) = asked_for(packet);
        let owner = asked.and_then(|address| self.addresses.get(&address)).copied();
        let is_for = |id: PortId, port: &Port| match owner {
            // What somebody says about its own address is for all.
            Some(owner) if owner != from => id == owner,
            None if is_question => id == PortId::Uplink || port.interface.is_trusted,
            _ => true,
        };
        let ports = self.ports.iter().filter(|(id, port)| **id != from && is_for(**id, port));
        self.candidates.extend(ports.map(|(id, _)| Destination { port: *id, mac: None }));
    }

    /// Have the rules of all receivers decide; why somebody does not get it.
    fn distribute(&mut self, from: PortId, packet: &Packet, now: Time) -> Option<Reason> {
        let candidates = std::mem::take(&mut self.candidates);
        let mut dropped = None;
        for candidate in &candidates {
            if let Err((at, reason)) = self.deliver(from, *candidate, packet, now) {
                dropped = dropped.or(Some(reason));
                if let Some(port) = self.ports.get_mut(&at) {
                    port.counters.drop(reason, packet.bytes);
                }
            }
        }
        self.candidates = candidates;
        dropped
    }

    /// Have a receiver's rules decide, and those of whom they name; else who drops it, and why.
    fn deliver(
        &mut self,
        from: PortId,
        mut to: Destination,
        packet: &Packet,
        now: Time,
    ) -> Result<(), (PortId, Reason)> {
        for _ in 0..=limits::MAX_REDIRECTIONS {
            let at = to.port;
            let port = self.ports.get_mut(&at).ok_or((from, Reason::NoDestination))?;
            match port.judge(Direction::Receive, packet, now) {
                Verdict::Drop(reason) => return Err((at, reason)),
                Verdict::To(next) if next == at => {}
                Verdict::To(next) => {
                    let next = self.destination(next, packet).filter(|it| it.port != from);
                    to = next.ok_or((at, Reason::NoDestination))?;
                    continue;
                }
                Verdict::Accept | Verdict::Nothing => {}
            }
            // Rules may send two copies of a broadcast to the same port.
            if port.last != Some(self.frames) {
                port.last = Some(self.frames);
                port.counters.received.add(packet.bytes);
                self.destinations.push(to);
            }
            return Ok(());
        }
        Err((to.port, Reason::Loop))
    }
}

/// The address that a group is asked for, and whether it is nobody else's business.
fn asked_for(packet: &Packet) -> (Option<IpAddr>, bool) {
    match packet.body {
        Body::Arp(arp) => (Some(IpAddr::V4(arp.target)), true),
        Body::Ip(ip) => match ip.transport {
            Transport::Neighbour(Neighbour { kind, target: Some(target), .. }) => {
                (Some(IpAddr::V6(target)), kind == icmpv6::NEIGHBOUR_SOLICITATION)
            }
            _ => (Some(ip.destination), false),
        },
        Body::Other => (None, false),
    }
}

/// Whether an address is that of many.
fn is_of_many(address: IpAddr) -> bool {
    address.is_multicast() || matches!(address, IpAddr::V4(it) if it.is_broadcast())
}

fn check_rate(rate: Rate) -> Result<(), ConfigurationError> {
    let wrong = ConfigurationError::Pattern(PatternError::NoRate);
    rate.is_possible().then_some(()).ok_or(wrong)
}

//! A port: whose it is, its rules, and what they have done.

use std::net::IpAddr;

use crate::address::{Mac, PortId};
use crate::bucket::{Bucket, Rate, Time};
use crate::counters::{Counters, Reason, Tally};
use crate::packet::Packet;
use crate::rule::{Action, Direction, Rule, Rules};

/// What a port is configured as.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Interface {
    /// Its address of Ethernet; only the uplink may have none.
    pub mac: Option<Mac>,
    /// Its addresses of IP. With one of IPv6 it has the link-local address that follows from its Ethernet address
    /// as well.
    pub addresses: Vec<IpAddr>,
    /// It may send as anybody, and receive for anybody, as a domain must that is a router itself.
    pub is_trusted: bool,
    /// How much it may send; its frames wait until they may go.
    pub rate: Option<Rate>,
}

impl Interface {
    /// Whether it has an address.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address) || self.link_local() == Some(address)
    }

    /// The address of IPv6 that it has besides those it was given.
    pub(crate) fn link_local(&self) -> Option<IpAddr> {
        let mac = self.mac.filter(|_| self.addresses.iter().any(IpAddr::is_ipv6))?;
        Some(IpAddr::V6(mac.link_local()))
    }
}

/// A rule, and what it has done.
#[derive(Clone, Debug)]
struct Kept {
    rule: Rule,
    matched: Tally,
    bucket: Option<Bucket>,
}

impl Kept {
    fn new(rule: Rule, now: Time) -> Self {
        let bucket = match rule.action {
            Action::Rate(rate) => Some(Bucket::new(rate, now)),
            _ => None,
        };
        Self { rule, matched: Tally::default(), bucket }
    }
}

/// What the rules say of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on.
    Accept,
    /// It goes elsewhere.
    To(PortId),
    /// It does not go on.
    Drop(Reason),
    /// None of them has decided.
    Nothing,
}

/// A port of the router's.
#[derive(Clone, Debug)]
pub struct Port {
    pub interface: Interface,
    pub counters: Counters,
    /// The last frame that it got, by the router's count.
    pub last: Option<u64>,
    transmit: Vec<Kept>,
    receive: Vec<Kept>,
}

impl Port {
    /// One without rules.
    pub fn new(interface: Interface) -> Self {
        let counters = Counters::default();
        Self { interface, counters, last: None, transmit: Vec::new(), receive: Vec::new() }
    }

    /// Have other rules from now on. Those that were there before go on with what they have counted and allowed.
    pub fn set_rules(&mut self, rules: &Rules, now: Time) {
        self.transmit = go_on(&mut self.transmit, &rules.transmit, now);
        self.receive = go_on(&mut self.receive, &rules.receive, now);
    }

    /// All rules, and what they have matched.
    pub fn rules(&self) -> impl Iterator<Item = (Direction, Rule, Tally)> + '_ {
        let all = |direction: Direction, list: &'_ [Kept]| {
            list.iter().map(move |kept| (direction, kept.rule, kept.matched)).collect::<Vec<_>>()
        };
        let transmit = all(Direction::Transmit, &self.transmit);
        transmit.into_iter().chain(all(Direction::Receive, &self.receive))
    }

    /// What the rules of a direction say of a packet.
    pub fn judge(&mut self, direction: Direction, packet: &Packet, now: Time) -> Verdict {
        let list = match direction {
            Direction::Transmit => &mut self.transmit,
            Direction::Receive => &mut self.receive,
        };
        for kept in list.iter_mut().filter(|kept| kept.rule.pattern.matches(packet)) {
            kept.matched.add(packet.bytes);
            match kept.rule.action {
                Action::Accept => return Verdict::Accept,
                Action::Drop => return Verdict::Drop(Reason::Rule),
                Action::To(port) => return Verdict::To(port),
                Action::Rate(_) => {
                    let bucket = kept.bucket.as_mut();
                    if bucket.is_some_and(|it| !it.take(packet.bytes.into(), now)) {
                        return Verdict::Drop(Reason::Rate);
                    }
                }
            }
        }
        Verdict::Nothing
    }
}

/// The new rules, each with what an old one that is the same has done.
fn go_on(old: &mut Vec<Kept>, new: &[Rule], now: Time) -> Vec<Kept> {
    let next = |rule: &Rule| match old.iter().position(|kept| kept.rule == *rule) {
        Some(place) => old.remove(place),
        None => Kept::new(*rule, now),
    };
    new.iter().map(next).collect()
}

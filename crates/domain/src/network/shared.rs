//! A machine in a network that it shares with pods and other machines (`biv network`): `--network`.
//!
//! The networks are those of pods ([`api::networks`]), with the same switch ([`switch`]): a machine is one more port.
//! What is different is who does what, because a machine's process may belong to its guest:
//!
//! 1. *Who the machine is, `biv run` says*, before the process is confined: it takes a place ([`api::places`]),
//!    connects to the switch, and attaches the machine with name, address and lease.
//! 2. *The machine's network process has the way.* It is the gateway, the name server and the published ports, as for
//!    any machine, at the other end of the machine's only cable; frames for others it passes to the switch and back
//!    ([`uplink::Way`]). It also holds the connection to the switch, over which it says nothing: the port lasts as long
//!    as that process, and that process as long as the machine.
//! 3. *The machine's process knows nothing of all this.* It has a cable, and a card with the Ethernet address that
//!    belongs to the address of IP. The switch lets nobody send with others.
//! 4. *A switch that has ended is replaced by whoever needs one next*, who attaches all machines again: their network
//!    processes wait for that at a socket in the domain's directory.
//!
//! So such a machine is always in the registry, with a generated name if it is given none; its place is taken as long
//! as it lives. Its kernel has been told the address, and a snapshot would be another's with the same: there are none
//! of it.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use api::networks::Network as Shared;
use api::pod::Member;
use api::{Name, Registry, files, places};
use spec::{Published, User};
use switch::Unreached;
use uplink::{Neighbours, Ports, Way};
use vmm::{Netdev, Network};

use super::Error;
use crate::Domain;

/// How long the machine that had the place before may take to leave it, and between two tries.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// A machine's place in a network that is there.
pub struct Starting {
    network: Shared,
    address: Option<Ipv4Addr>,
    alias: Option<Name>,
    reaches_host: bool,
    ports: Ports,
    confine: bool,
}

impl Starting {
    /// One of which the network exists and the published ports are bound.
    pub fn new(
        network: &Name,
        user: &User,
        published: &[Published],
        confine: bool,
    ) -> Result<Self, Error> {
        let network = Registry::of_pods()?.networks()?.find(network.as_str())?;
        let ports = Ports::bind(published)?;
        let User { reaches_host, address, ref alias, .. } = *user;
        let alias = alias.clone();
        Ok(Self { network, address, alias, reaches_host, ports, confine })
    }

    /// Attaches it; returns the machine's card, and what its init is told.
    pub fn attach(self, domain: &Domain) -> Result<(Network, String), Error> {
        let (Some(name), Some(directory)) = (domain.name(), domain.directory()) else {
            return Err(std::io::Error::other("the machine is in no registry").into());
        };
        let member = self.take_place(name, directory)?;
        let (frames, at_switch) = switch::pair()?;
        let (hears, tells) = switch::pair()?;
        let connection = attach_to(&self.network, name, &member, [&at_switch, &tells])?;
        // From now on others may attach it to another switch.
        let bell = files::hear(directory, files::PLACE)?.into();
        let way = Way { frames, connection, bell };
        let (ours, theirs) = uplink::pair()?;
        let Member { address, subnet, .. } = member;
        let (card, gateway, bits) = (switch::card_of(address), subnet.gateway(), subnet.bits());
        let neighbours = Neighbours { guest: address, card, gateway, bits };
        let how = (self.ports, self.reaches_host, self.confine);
        uplink::start_among(&theirs, how, (neighbours, &hears), &way)?;
        let network = Network { netdev: Netdev::Stream(ours), address: card, relink: None };
        Ok((network, format!("biv.network={address}/{bits},{gateway},{gateway}")))
    }

    /// Takes a place in the network, which is the machine's as long as it lives.
    fn take_place(&self, name: &Name, directory: &OwnedFd) -> Result<Member, Error> {
        let _alone = self.network.lock()?;
        let (network, subnet) = (&self.network.description.name, self.network.description.subnet);
        let residents = places::residents(network)?;
        let machine = (places::Kind::Machine, name);
        let address = places::choose(&self.network, machine, self.address, &residents, |_| false)?;
        let (network, alias) = (network.clone(), self.alias.clone());
        let member = Member { network, address, subnet, lease: places::lease(), alias };
        places::keep(directory, &member)?;
        Ok(member)
    }
}

/// Attaches the machine to its network's switch. The port of a machine that had the address before may still be there
/// for a moment: its place is free, so its network process is about to end.
fn attach_to(
    network: &Shared,
    name: &Name,
    member: &Member,
    [frames, names]: [&OwnedFd; 2],
) -> Result<OwnedFd, Error> {
    let attach = switch::attach_of(name, member);
    let start = Instant::now();
    loop {
        match switch::reach(network, |client| client.attach(&attach, frames, names)) {
            Err(Unreached::Switch(_, switch::Error::Refused(_))) if start.elapsed() < PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            other => return Ok(other?.into()),
        }
    }
}

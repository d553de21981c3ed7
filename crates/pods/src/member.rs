//! A pod's place in a network of several: its address, and its port at the network's switch ([`switch`]).
//!
//! 1. *An address is taken by who lives* ([`api::places`]). It is in the pod's record; who takes one holds the
//!    network's lock from when it looks at the places of others until its own is written.
//! 2. *Who is made again has its address again*, or is not made. One that moves takes the place of itself: it may have
//!    the address of a pod with the same lease, which is frozen, and the switch lets it have it when it runs.
//! 3. *The switch may end at any time.* Each keeper notices by its connection, and attaches its pod again; the first
//!    starts the next switch, under the network's lock.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use api::networks::{self, Network};
use api::pod::{Member, Record};
use api::{Name, Registry, places};
use serde::{Deserialize, Serialize};
use switch::{Attach, Client};

/// Which place a pod wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The network; none: the one that it had.
    pub network: Option<Name>,
    /// The address; none: one that is free.
    pub address: Option<Ipv4Addr>,
    /// The lease that it had with this address.
    pub lease: Option<String>,
}

/// Why a pod has no place in a network.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The network.
    #[error(transparent)]
    Network(#[from] networks::Error),
    /// The registry.
    #[error(transparent)]
    Registry(#[from] api::registry::Error),
    /// The place.
    #[error(transparent)]
    Place(#[from] places::Error),
    /// It is not said which network.
    #[error("--ip requires --network, unless the pod was in one")]
    Which,
    /// The switch does not want it, or cannot be had.
    #[error(transparent)]
    Switch(#[from] switch::Unreached),
}

/// A place, and the network's lock: nobody else takes one until that is dropped.
#[derive(Debug)]
pub struct Place {
    /// The place.
    pub member: Member,
    /// The network.
    pub network: Network,
    /// Its lock.
    pub alone: OwnedFd,
}

/// Finds a place for the pod `name`; `moves` says that one with the same lease may be there that does not run.
///
/// # Errors
///
/// There is no such network, or the address is another's.
pub fn find(
    registry: &Registry<Record>,
    name: &Name,
    join: &Join,
    moves: bool,
) -> Result<Place, Error> {
    let wanted = join.network.clone().ok_or(Error::Which)?;
    let network = registry.networks()?.find(wanted.as_str())?;
    let alone = network.lock()?;
    let subnet = network.description.subnet;
    let is_itself = |member: &Member| moves && Some(&member.lease) == join.lease.as_ref();
    let residents = places::residents(&wanted)?;
    let pod = (places::Kind::Pod, name);
    let address = places::choose(&network, pod, join.address, &residents, is_itself)?;
    let lease = join.lease.clone().unwrap_or_else(places::lease);
    let member = Member { network: wanted, address, subnet, lease, alias: None };
    Ok(Place { member, network, alone })
}

/// A pod's port at the switch of its network.
#[derive(Debug)]
pub struct Port {
    network: Network,
    pod: Attach,
    /// The packet socket for the pod's neighbours.
    frames: OwnedFd,
    /// The way to the process that answers its questions about names.
    names: OwnedFd,
    client: Option<Client>,
}

impl Port {
    /// One that is not attached yet.
    #[must_use]
    pub fn new(
        name: &Name,
        (network, member): (Network, &Member),
        frames: OwnedFd,
        names: OwnedFd,
    ) -> Port {
        let pod = switch::attach_of(name, member);
        Port { network, pod, frames, names, client: None }
    }

    /// Attaches the pod; starts the switch if there is none.
    ///
    /// # Errors
    ///
    /// It cannot be started, or does not want the pod.
    pub fn attach(&mut self) -> Result<(), Error> {
        self.client = None;
        self.client = Some(switch::reach(&self.network, |client| {
            client.attach(&self.pod, &self.frames, &self.names)
        })?);
        Ok(())
    }

    /// Has nothing pass in either direction: the pod is about to be away. Without a switch, nothing does.
    ///
    /// # Errors
    ///
    /// The switch does not answer.
    pub fn hold(&mut self) -> Result<(), switch::Error> {
        let held = |client: &Client| client.hold_beginnings().and_then(|()| client.hold());
        match self.client.as_ref().map_or(Ok(()), held) {
            Err(error) if switch::has_gone(&error) => {
                self.client = None;
                Ok(())
            }
            other => other,
        }
    }

    /// The pod is there: what was held passes, and what comes.
    ///
    /// # Errors
    ///
    /// It has to be attached again, and cannot be.
    pub fn release(&mut self) -> Result<(), Error> {
        match &self.client {
            Some(client) if client.release().is_ok() => Ok(()),
            _ => self.attach(),
        }
    }

    /// What can be read from when the switch has gone.
    #[must_use]
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.client.as_ref().map(AsFd::as_fd)
    }

    /// The switch has gone.
    pub fn lose(&mut self) {
        self.client = None;
    }
}

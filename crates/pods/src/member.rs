//! A pod's place in a network of several: its address, and its port at the network's switch ([`switch`]).
//!
//! 1. *An address is taken by who lives.* It is in the pod's record; who takes one holds the network's lock from when
//!    it looks at the records of others until its own is written. An address follows from the names of network and pod,
//!    if it is free; so a pod that is started again has mostly the one that it had.
//! 2. *Who is made again has its address again*, or is not made. One that moves takes the place of itself: it may have
//!    the address of a pod with the same lease, which is frozen, and the switch lets it have it when it runs.
//! 3. *The switch may end at any time.* Each keeper notices by its connection, and attaches its pod again; the first
//!    starts the next switch, under the network's lock.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::Mutex;

use api::networks::{self, Network};
use api::pod::{Member, Record};
use api::{Name, Registry, files};
use locks::Unpoisoned;
use serde::{Deserialize, Serialize};
use switch::{Attach, Client};

/// How often a switch is started that ends before anybody could use it.
const STARTS: u32 = 3;

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
    /// Another has the address.
    #[error("{address} in network {network} is the address of pod {pod}; choose another with --ip")]
    Taken {
        /// The address.
        address: Ipv4Addr,
        /// The network.
        network: Name,
        /// Whose it is.
        pod: Name,
    },
    /// It is none of the network's.
    #[error("{address} is no address for a pod in network {network}, which has {subnet}")]
    Address {
        /// The address.
        address: Ipv4Addr,
        /// The network.
        network: Name,
        /// Its addresses.
        subnet: networks::Subnet,
    },
    /// It is not said which network.
    #[error("--ip requires --network, unless the pod was in one")]
    Which,
    /// All are taken.
    #[error("network {0} has no free address")]
    Full(Name),
    /// The switch does not want it, or cannot be had.
    #[error("cannot attach the pod to network {0}: {1}")]
    Switch(Name, #[source] switch::Error),
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
    let taken = members(registry, &wanted)?;
    let owner = |address| taken.iter().find(|(_, member)| member.address == address);
    let address = match join.address {
        None => {
            let first = first_choice(&wanted, name);
            let mut all = (0..subnet.pods()).map(|step| subnet.pod(first.wrapping_add(step)));
            let free = all.find(|address| owner(*address).is_none());
            free.ok_or_else(|| Error::Full(wanted.clone()))?
        }
        Some(address) if !subnet.has_pod(address) => {
            return Err(Error::Address { address, network: wanted, subnet });
        }
        Some(address) => {
            let is_itself = |member: &Member| moves && Some(&member.lease) == join.lease.as_ref();
            if let Some((pod, _)) = owner(address).filter(|(_, member)| !is_itself(member)) {
                let pod = pod.clone();
                return Err(Error::Taken { address, network: wanted, pod });
            }
            address
        }
    };
    let new = || format!("{:016x}{:016x}", files::random(), files::random());
    let lease = join.lease.clone().unwrap_or_else(new);
    let member = Member { network: wanted, address, subnet, lease };
    Ok(Place { member, network, alone })
}

/// The pods that live in a network, and their places.
///
/// # Errors
///
/// The registry's.
pub fn members(
    registry: &Registry<Record>,
    network: &Name,
) -> Result<Vec<(Name, Member)>, api::registry::Error> {
    let living = registry.list()?.into_iter().filter(|entry| entry.alive);
    let member = |entry: api::Entry<Record>| Some((entry.name, entry.record?.network?.member?));
    Ok(living.filter_map(member).filter(|(_, member)| member.network == *network).collect())
}

/// A number that follows from both names (FNV-1a).
fn first_choice(network: &Name, pod: &Name) -> u32 {
    let bytes = network.as_str().bytes().chain([0]).chain(pod.as_str().bytes());
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
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
        let Member { address, lease, .. } = member.clone();
        let pod = Attach { name: name.to_string(), address, lease };
        Port { network, pod, frames, names, client: None }
    }

    /// Attaches the pod; starts the switch if there is none.
    ///
    /// # Errors
    ///
    /// It cannot be started, or does not want the pod.
    pub fn attach(&mut self) -> Result<(), Error> {
        self.client = None;
        self.client = Some(connect(&self.network, |client| {
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
            Err(error) if has_gone(&error) => {
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

/// A connection to a network's switch, which is started if there is none, with what is said first.
///
/// # Errors
///
/// It cannot be started, or does not want what is said.
pub(crate) fn connect(
    network: &Network,
    say: impl Fn(&Client) -> Result<(), switch::Error>,
) -> Result<Client, Error> {
    let failed = |error| Error::Switch(network.description.name.clone(), error);
    let attempt = || {
        let client = Client::connect(&network.control())?;
        say(&client)?;
        Ok(client)
    };
    let mut tried = attempt();
    if tried.as_ref().err().is_some_and(has_gone) {
        let _alone = network.lock()?;
        tried = attempt();
        for _ in 0..STARTS {
            if tried.as_ref().err().is_none_or(|error| !has_gone(error)) {
                break;
            }
            start(network).map_err(|error| failed(error.into()))?;
            tried = attempt();
        }
    }
    tried.map_err(failed)
}

/// Starts a network's switch. To be called with the network's lock.
fn start(network: &Network) -> io::Result<()> {
    network.remove_control()?;
    let control = switch::listen_at(&network.control())?;
    let subnet = network.description.subnet;
    let messages = network.messages()?;
    let mut started = SWITCHES.lock().unpoisoned();
    // Those that have ended.
    started.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
    started.push(switch::start(&control, subnet.gateway(), subnet.bits(), messages)?);
    Ok(())
}

/// Whether there is no switch any more: one that only does not answer is not replaced.
pub(crate) fn has_gone(error: &switch::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    let kinds = [BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof];
    matches!(error, switch::Error::Io(error) if kinds.contains(&error.kind()))
}

/// The switches that this process has started, which may outlive it.
static SWITCHES: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Whether this process has children besides switches; true if the host does not say.
#[must_use]
pub fn has_other_children() -> bool {
    let switches: Vec<u32> = SWITCHES.lock().unpoisoned().iter().map(Child::id).collect();
    children().is_none_or(|children| children.iter().any(|child| !switches.contains(child)))
}

/// The children of all threads.
fn children() -> Option<Vec<u32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task").ok()? {
        let path = thread.ok()?.path().join("children");
        let of_it = match std::fs::read_to_string(path) {
            // The thread has ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !children.is_empty() => {
                continue;
            }
            other => other.ok()?,
        };
        children.extend(of_it.split_whitespace().filter_map(|number| number.parse::<u32>().ok()));
    }
    Some(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_from_names() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let choice = |network, pod| first_choice(&name(network), &name(pod));
        assert_eq!(choice("a", "web"), choice("a", "web"));
        assert_ne!(choice("a", "web"), choice("b", "web"));
        assert_ne!(choice("ab", "c"), choice("a", "bc"));
    }

    #[test]
    fn children_that_are_no_switches_are_seen() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(has_other_children());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

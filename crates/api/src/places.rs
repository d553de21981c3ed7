//! Places in a network that is shared: who has which address, pods and machines.
//!
//! 1. *A place is taken by who lives.* A pod's is in its record. A machine's is in a file of its directory
//!    ([`files::PLACE_STATE`]) that `biv run` writes before the machine's process is confined: that process, which its
//!    guest may own, cannot write it, as it can its record.
//! 2. *Who takes one holds the network's lock* from when it looks until its own place is written.
//! 3. *An address follows from the names of network and member*, if it is free: so who starts again has mostly the one
//!    that it had.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use super::networks::{Network, Subnet};
use super::pod::Member;
use super::registry::{Entry, Error as RegistryError};
use super::{Name, Record, Registry, files, pod};

/// The longest file of a place that is read.
const PLACE_MAX_BYTES: u64 = 4 << 10;

/// What lives in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A pod.
    Pod,
    /// A machine.
    Machine,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Pod => "pod",
            Kind::Machine => "machine",
        })
    }
}

/// Somebody who lives in a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: Name,
    /// Its place.
    pub member: Member,
}

/// Why a place cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another has the address.
    #[error(
        "{address} in network {network} is the address of {kind} {name}; choose another with --ip"
    )]
    Taken {
        /// The address.
        address: Ipv4Addr,
        /// The network.
        network: Name,
        /// What has it.
        kind: Kind,
        /// Whose it is.
        name: Name,
    },
    /// One of the other kind has the name, by which both would be asked for.
    #[error("network {network} has a {kind} {name} already; choose another name")]
    Named {
        /// The network.
        network: Name,
        /// What has it.
        kind: Kind,
        /// The name.
        name: Name,
    },
    /// It is none of the network's.
    #[error(
        "{address} is no address for a pod or machine in network {network}, which has {subnet}"
    )]
    Address {
        /// The address.
        address: Ipv4Addr,
        /// The network.
        network: Name,
        /// Its addresses.
        subnet: Subnet,
    },
    /// All are taken.
    #[error("network {0} has no free address")]
    Full(Name),
}

/// All who live in a network.
///
/// # Errors
///
/// The registry's.
pub fn residents(network: &Name) -> Result<Vec<Resident>, RegistryError> {
    let pods = Registry::of_pods()?.list()?.into_iter().filter(|entry| entry.alive);
    let pod = |entry: Entry<pod::Record>| Some((entry.name, entry.record?.network?.member?));
    let pods = pods.filter_map(pod).filter(|(_, member)| member.network == *network);
    let mut all: Vec<Resident> =
        pods.map(|(name, member)| Resident { kind: Kind::Pod, name, member }).collect();
    let machines = machines(network)?.into_iter();
    all.extend(machines.map(|(entry, member)| {
        let name = entry.name;
        Resident { kind: Kind::Machine, name, member }
    }));
    Ok(all)
}

/// The machines that live in a network, and their places.
///
/// # Errors
///
/// The registry's.
pub fn machines(network: &Name) -> Result<Vec<(Entry<Record>, Member)>, RegistryError> {
    let living = Registry::<Record>::open()?.list()?.into_iter().filter(|entry| entry.alive);
    let member = |entry: Entry<Record>| {
        // Who has none, or one that nobody can read, is in no network.
        let member = of_machine(&entry.directory).ok()??;
        Some((entry, member))
    };
    Ok(living.filter_map(member).filter(|(_, member)| member.network == *network).collect())
}

/// The place of the machine with this directory; none if it is in no network.
///
/// # Errors
///
/// It cannot be read.
pub fn of_machine(directory: &OwnedFd) -> io::Result<Option<Member>> {
    match files::read(directory, files::PLACE_STATE, PLACE_MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
    }
}

/// Writes the place of the machine with this directory.
///
/// # Errors
///
/// The host's.
pub fn keep(directory: impl AsFd, member: &Member) -> io::Result<()> {
    files::replace(directory, files::PLACE_STATE, &serde_json::to_vec(member)?)
}

/// Chooses an address for a member of that name, or takes the one that is wanted. `is_itself` says of who has it
/// whether that is the same. To be called with the network's lock.
///
/// # Errors
///
/// There is none, or another has it, or the name.
pub fn choose(
    network: &Network,
    (kind, name): (Kind, &Name),
    wanted: Option<Ipv4Addr>,
    residents: &[Resident],
    is_itself: impl Fn(&Member) -> bool,
) -> Result<Ipv4Addr, Error> {
    let (subnet, of) = (network.description.subnet, &network.description.name);
    let named = |it: &&Resident| it.kind != kind && it.name == *name && !is_itself(&it.member);
    if let Some(Resident { kind, name, .. }) = residents.iter().find(named).cloned() {
        return Err(Error::Named { network: of.clone(), kind, name });
    }
    let owner = |address| residents.iter().find(|it| it.member.address == address);
    let Some(address) = wanted else {
        let first = first_choice(of, name);
        let mut all = (0..subnet.pods()).map(|step| subnet.pod(first.wrapping_add(step)));
        let free = all.find(|address| owner(*address).is_none());
        return free.ok_or_else(|| Error::Full(of.clone()));
    };
    if !subnet.has_pod(address) {
        return Err(Error::Address { address, network: of.clone(), subnet });
    }
    match owner(address).filter(|it| !is_itself(&it.member)).cloned() {
        Some(Resident { kind, name, .. }) => {
            Err(Error::Taken { address, network: of.clone(), kind, name })
        }
        None => Ok(address),
    }
}

/// What tells a member from another that has its address later.
#[must_use]
pub fn lease() -> String {
    format!("{:016x}{:016x}", files::random(), files::random())
}

/// A number that follows from both names (FNV-1a).
fn first_choice(network: &Name, member: &Name) -> u32 {
    let bytes = network.as_str().bytes().chain([0]).chain(member.as_str().bytes());
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
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
}

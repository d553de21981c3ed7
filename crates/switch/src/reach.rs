//! Whoever needs a network's switch: a connection to the one that runs, or to another that is started.
//!
//! 1. *Who starts a switch attaches all machines of the network to it.* A pod's keeper notices by itself that its
//!    switch has gone; a machine's process can neither start one nor connect to it. Until somebody does it for them,
//!    machines do not hear each other.
//! 2. *What leads to the switch is sent to the machine's network process*, over a socket of datagrams in the machine's
//!    directory. Nothing is asked of that process, and nothing that it says is believed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::Mutex;

use api::networks::{self, Network};
use api::pod::Member;
use api::{Entry, Name, files, places};
use locks::Unpoisoned;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::limits::PAIR_BYTES;
use crate::{Attach, Client, Error};

/// How often a switch is started that ends before anybody could use it.
const STARTS: u32 = 3;

/// Why a switch is not reached.
#[derive(Debug, thiserror::Error)]
pub enum Unreached {
    /// The network.
    #[error(transparent)]
    Network(#[from] networks::Error),
    /// The switch does not want it, or cannot be had.
    #[error("cannot attach to network {0}: {1}")]
    Switch(Name, #[source] Error),
}

/// A connection to a network's switch, which is started if there is none, with what is said first.
///
/// # Errors
///
/// It cannot be started, or does not want what is said.
pub fn reach(
    network: &Network,
    say: impl Fn(&Client) -> Result<(), Error>,
) -> Result<Client, Unreached> {
    let failed = |error| Unreached::Switch(network.description.name.clone(), error);
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
            if tried.is_ok() {
                attach_machines(network);
            }
        }
    }
    tried.map_err(failed)
}

/// Starts a network's switch. To be called with the network's lock.
fn start(network: &Network) -> io::Result<()> {
    network.remove_control()?;
    let control = crate::listen_at(&network.control())?;
    let subnet = network.description.subnet;
    let messages = network.messages()?;
    let mut started = SWITCHES.lock().unpoisoned();
    // Those that have ended.
    started.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
    started.push(crate::start(&control, subnet.gateway(), subnet.bits(), messages)?);
    Ok(())
}

/// Whether there is no switch any more: one that only does not answer is not replaced.
#[must_use]
pub fn has_gone(error: &Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    let kinds = [BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof];
    matches!(error, Error::Io(error) if kinds.contains(&error.kind()))
}

/// Has a switch again for the machines of a network, if theirs has ended.
///
/// # Errors
///
/// There is none.
pub fn mend(network: &Network) -> Result<(), Unreached> {
    reach(network, |_| Ok(())).map(drop)
}

/// Attaches the machines of a network that are not. One that cannot be, because it ends just now, for one, is without
/// neighbours as before.
fn attach_machines(network: &Network) {
    for (machine, member) in places::machines(&network.description.name).into_iter().flatten() {
        if let Err(error) = attach_machine(network, &machine, &member) {
            tracing::info!("{} is not attached: {error}", machine.name);
        }
    }
}

fn attach_machine(network: &Network, machine: &Entry, member: &Member) -> Result<(), Error> {
    // One that is being started attaches itself, and has no such place before it has.
    let bell = files::tell(&machine.directory, files::PLACE)?;
    let (frames, at_switch) = pair()?;
    let (hears, tells) = pair()?;
    let client = Client::connect(&network.control())?;
    client.attach(&attach_of(&machine.name, member), &at_switch, &tells)?;
    let way = [frames.as_fd(), hears.as_fd(), client.as_fd()];
    Ok(host::rights::send(&bell, &[1], &way)?)
}

/// Who somebody is, as the switch is told.
#[must_use]
pub fn attach_of(name: &Name, member: &Member) -> Attach {
    let Member { address, lease, alias, .. } = member.clone();
    Attach { name: alias.unwrap_or_else(|| name.clone()).to_string(), address, lease }
}

/// Both ends of a socket of packets, with as much room as the host allows.
///
/// # Errors
///
/// The host's.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let ends = socketpair(AddressFamily::UNIX, kind, flags, None)?;
    for end in [&ends.0, &ends.1] {
        set_socket_send_buffer_size(end, PAIR_BYTES)?;
    }
    Ok(ends)
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
    fn children_that_are_no_switches_are_seen() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(has_other_children());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

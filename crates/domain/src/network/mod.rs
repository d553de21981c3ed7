//! The back-end of a guest's network card: `--net`, `--publish` and `--vif`.
//!
//! Everything is opened, bound and started here, before the machine's process is confined. Another
//! process makes a user-mode network, and is reached through a socket: one of our own
//! ([`builtin`]), or [`passt`]. So does the router of a network between domains ([`routed`]), which a domain's virtual
//! interface ([`vif`]) is attached to.

mod builtin;
mod passt;
pub mod routed;
mod tap;
pub mod vif;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use vmm::{Configuration, Netdev, Network, Preparation};

use crate::Domain;
pub use builtin::{KIND, Serving, serve};
use spec::{Backend, Name, Net, Published, Spec, User};

/// The guest's address and those of its network, as QEMU's users know them.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Its gateway, which also stands for the host's loopback interface where the guest may reach the host.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// The name server.
pub const NAMESERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// Bits of the network's prefix.
pub const PREFIX_BITS: u8 = 24;

/// The greatest packet, as the card has it.
const MTU: u16 = 65520;

/// The card's address in a user-mode network, where there is no other card.
pub const CARD: [u8; 6] = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];

/// What is asked of the socket's buffers; the host gives what it allows.
const BUFFER_BYTES: usize = 4 << 20;

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port of the host's.
    #[error("cannot publish port {0}: {1}; choose another port or address")]
    Port(Published, #[source] io::Error),
    /// passt was asked for.
    #[error(
        "cannot start passt: {0}; use --net user,backend=builtin, or --net none for no network"
    )]
    Passt(String),
    /// Our own.
    #[error("cannot start the network process: {0}; use --net none to run without a network")]
    Builtin(#[source] io::Error),
    /// An interface of the host's.
    #[error("cannot use the interface {0}: {1}")]
    Tap(String, #[source] host::tap::Error),
    /// The registry, where networks between domains have their places.
    #[error(transparent)]
    Registry(#[from] api::registry::Error),
    /// The router of a network between domains.
    #[error("cannot start the router of the network {0}: {1}")]
    Router(Name, #[source] io::Error),
    /// It does not have a VIF.
    #[error("cannot be attached to the network {0}: {1}")]
    Attach(Name, #[source] io::Error),
    /// A domain without a VIF is asked for it.
    #[error("domain {0} has no VIF; start it with `biv run --xen --vif ip=ADDRESS`")]
    NoVif(Name),
    /// Rules, or a rate.
    #[error("{0}")]
    Rules(String),
    /// A socket, or a random number.
    #[error("cannot set up the network: {0}")]
    Host(#[from] io::Error),
}

/// A network that may still be starting.
pub struct Starting {
    card: Card,
    /// For the guest's init.
    parameter: String,
    /// What is to be waited for.
    passt: Option<passt::Starting>,
}

/// A machine's card.
enum Card {
    /// It is there.
    Ready(Network),
    /// It is attached when the domain has its name.
    Vif(vif::Starting),
}

/// Starts the network `net` for a machine; a process of ours is confined, if it is to be.
pub fn start(spec: &Spec, net: &Net) -> Result<Option<Starting>, Error> {
    let published: &[_] = &spec.published().copied().collect::<Vec<_>>();
    let (processors, confine) = (spec.machine.processors.into(), !spec.engine.no_seccomp);
    match net {
        Net::None => Ok(None),
        Net::Tap(name) => {
            let netdev = Netdev::Tap(tap::open(name, processors)?);
            let network = Network { netdev, address: tap::random_address()?, relink: None };
            let parameter = "biv.network=dhcp".to_owned();
            Ok(Some(Starting { card: Card::Ready(network), parameter, passt: None }))
        }
        Net::Vif(_) => {
            // What is typed does not have its first rules.
            let vif = spec.networks.iter().flatten().find_map(|network| match network {
                spec::Network::Vif(vif) => Some(vif),
                _ => None,
            });
            let started = vif.map(|vif| vif::Starting::new(vif, confine)).transpose()?;
            Ok(started.map(|starting| Starting {
                parameter: starting.parameter(),
                card: Card::Vif(starting),
                passt: None,
            }))
        }
        Net::User(user) => start_user(*user, published, confine).map(Some),
    }
}

/// Ours, unless passt is asked for: docs/design/6-network.md says why.
fn start_user(user: User, published: &[Published], confine: bool) -> Result<Starting, Error> {
    published.iter().try_for_each(try_port)?;
    let (ours, theirs) = pair()?;
    let passt = match user.backend {
        Some(Backend::Passt) => Some(passt::start(&theirs, published)?),
        _ => {
            let started = builtin::start(&theirs, published, user.reaches_host, confine);
            started.map_err(Error::Builtin)?;
            None
        }
    };
    Ok(Starting {
        card: Card::Ready(Network { netdev: Netdev::Stream(ours), address: CARD, relink: None }),
        parameter: format!("biv.network={GUEST}/{PREFIX_BITS},{GATEWAY},{NAMESERVER}"),
        passt,
    })
}

impl Starting {
    /// What the guest's init is told, a word of the kernel's command line.
    pub fn parameter(&self) -> &str {
        &self.parameter
    }

    /// Gives the machine its card, which waits, before it starts, until the network has started.
    ///
    /// # Errors
    ///
    /// The domain cannot be attached to its network.
    pub fn connect(self, configuration: &mut Configuration, domain: &Domain) -> Result<(), Error> {
        let network = match self.card {
            Card::Ready(network) => network,
            Card::Vif(starting) => starting.attach(domain)?,
        };
        configuration.devices.push(Box::new(network));
        if let Some(passt) = self.passt {
            let wait = move || passt.finish().map_err(|why| Error::Passt(why).to_string());
            configuration.preparation = Preparation(Some(Box::new(wait)));
        }
        Ok(())
    }
}

/// Both ends of a cable.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let ends = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for end in [&ends.0, &ends.1] {
        sockopt::set_socket_send_buffer_size(end, BUFFER_BYTES)?;
    }
    Ok(ends)
}

/// The host's resolver of names, if IPv4 reaches one (resolv.conf(5)).
fn resolver() -> Option<Ipv4Addr> {
    first_resolver(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
}

/// Whether a port can be had, for an error that names it. Whoever uses it binds it again.
fn try_port(published: &Published) -> Result<(), Error> {
    let address = SocketAddrV4::new(published.address, published.host);
    let bound = match published.is_udp {
        true => UdpSocket::bind(address).map(drop),
        false => TcpListener::bind(address).map(drop),
    };
    bound.map_err(|error| Error::Port(*published, error))
}

/// The first resolver that IPv4 reaches.
fn first_resolver(text: &str) -> Option<Ipv4Addr> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.filter_map(|rest| rest.trim().parse::<IpAddr>().ok()).find_map(|address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_resolver_of_ipv4_is_asked() {
        let check = |text, expected: Option<&str>| {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(first_resolver(text), expected, "{text}");
        };
        check("# none\nsearch x\n", None);
        check("nameserver ::1\nnameserver 127.0.0.53 \nnameserver 9.9.9.9\n", Some("127.0.0.53"));
    }
}

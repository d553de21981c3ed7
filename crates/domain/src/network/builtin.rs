//! Our own network. The program starts itself again with one end of the cable and with the
//! published ports, which it has bound before. That process confines itself, serves, and ends when
//! the cable is closed.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use network::{Addresses, Plan, Server};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};

use super::{CARD, GATEWAY, GUEST, MTU, NAMESERVER, PREFIX_BITS, Published, pair, resolver};
use crate::helper::{helper, spawn_with};

/// The kind of process that is one.
pub const KIND: &str = "network";

/// The port on which names are asked for.
const DNS: u16 = 53;

/// Starts it with this end of the cable; it confines itself, if it is to.
pub fn start(
    end: &OwnedFd,
    published: &[Published],
    reaches_host: bool,
    confine: bool,
) -> io::Result<()> {
    let cable = end.as_raw_fd();
    let (tcp, udp) = (vec![], vec![]);
    let mut order = Serving { cable, reaches_host, several: None, tcp, udp, confined: confine };
    let mut inherited = Vec::new();
    for published in published {
        let host = (published.address, published.host);
        let (ports, bound): (_, OwnedFd) = match published.is_udp {
            true => (&mut order.udp, UdpSocket::bind(host)?.into()),
            false => (&mut order.tcp, TcpListener::bind(host)?.into()),
        };
        ports.push((bound.as_raw_fd(), published.guest));
        inherited.push(bound);
    }
    inherited.iter().try_for_each(|file| fcntl_setfd(file, FdFlags::empty()))?;
    spawn_with(end, &mut helper(KIND, &order)?).map(drop)
}

/// Starts the same for several guests, whom a router at the cable's other end tells apart, and which none reaches
/// from outside; returns that end. Nobody of them reaches this host. What it says is for `messages`.
pub fn start_uplink(several: Several, messages: File, confine: bool) -> io::Result<OwnedFd> {
    let (ours, theirs) = pair()?;
    let order = Serving {
        cable: theirs.as_raw_fd(),
        reaches_host: false,
        several: Some(several),
        tcp: vec![],
        udp: vec![],
        confined: confine,
    };
    let mut command = helper(KIND, &order)?;
    spawn_with(&theirs, command.stderr(messages))?;
    Ok(ours)
}

/// A network of several guests.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Several {
    /// Its gateway, which is its name server as well.
    pub gateway: Ipv4Addr,
    /// Bits of its prefix.
    pub bits: u8,
}

/// What that process is started with: numbers of descriptors that are open.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serving {
    /// The cable.
    pub cable: i32,
    /// The guest reaches this host.
    pub reaches_host: bool,
    /// There are several guests.
    pub several: Option<Several>,
    /// What listens, and the guest's port to which it leads.
    pub tcp: Vec<(i32, u16)>,
    /// The same of UDP.
    pub udp: Vec<(i32, u16)>,
    /// It may make the system calls only that it needs.
    pub confined: bool,
}

/// What that process does.
pub fn serve(serving: &Serving) -> io::Result<()> {
    host::inherited::close_marked();
    let take = |number: i32| host::inherited::take(number);
    let cable = take(serving.cable)?;
    let addresses = addresses(serving.reaches_host, serving.several);
    let card = serving.several.is_none().then_some(CARD);
    let mut plan = Plan { addresses, mtu: MTU, card, tcp: vec![], udp: vec![] };
    for &(descriptor, guest) in &serving.tcp {
        plan.tcp.push((take(descriptor)?.into(), guest));
    }
    for &(descriptor, guest) in &serving.udp {
        plan.udp.push((take(descriptor)?.into(), guest));
    }
    // A socket for each connection.
    host::raise_descriptor_limit();
    let mut server = Server::new(cable, plan)?;
    if serving.confined {
        host::privileges::drop_all()?;
        host::confine::confine_network().map_err(io::Error::other)?;
    }
    server.run()
}

fn addresses(reaches_host: bool, several: Option<Several>) -> Addresses {
    // Without one, it is this host (resolv.conf(5)).
    let resolver = resolver().unwrap_or(Ipv4Addr::LOCALHOST);
    let one = Addresses {
        guest: GUEST,
        gateway: GATEWAY,
        host: reaches_host.then_some(Ipv4Addr::LOCALHOST),
        nameserver: NAMESERVER,
        prefix_bits: PREFIX_BITS,
        resolver: Some(SocketAddrV4::new(resolver, DNS)),
    };
    match several {
        None => one,
        Some(Several { gateway, bits }) => Addresses {
            // Nobody: no port leads to one of them.
            guest: Ipv4Addr::UNSPECIFIED,
            gateway,
            nameserver: gateway,
            prefix_bits: bits,
            ..one
        },
    }
}

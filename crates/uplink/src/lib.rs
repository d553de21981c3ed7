//! A user-mode network, [`network`], as a process of this program, for one machine, one pod, or several domains.
//!
//! The program starts itself again with one end of the cable and with the published ports, which it has bound before.
//! That process confines itself, serves, and ends when the cable is closed; one that is at an interface of a pod's ends
//! when its line is.
//!
//! What it is not: the network itself, nor what is at the cable's other end.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use host::poll::{PollFlags, wait_for};
pub use network::Way;
use network::{Addresses, Cable, Line, Plan, Server};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, listen, socket_with, socketpair, sockopt,
};
use serde::{Deserialize, Serialize};
use session::helper::{helper, spawn_with};
use spec::Published;

/// The kind of process that is one.
pub const KIND: &str = "network";

/// The guest's address and those of its network, as QEMU's users know them.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Its gateway, which also stands for the host's loopback interface where the guest may reach the host.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// The name server.
pub const NAMESERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// Bits of the network's prefix.
pub const PREFIX_BITS: u8 = 24;

/// The greatest packet, as a machine's card has it.
pub const MTU: u16 = 65520;

/// The card's address, where there is no other card.
pub const CARD: [u8; 6] = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];

/// The gateway's card.
pub const GATEWAY_CARD: [u8; 6] = network::OURS;

/// The port on which names are asked for.
const DNS: u16 = 53;

/// What is asked of the buffers of a cable's sockets; the host gives what it allows.
const BUFFER_BYTES: usize = 4 << 20;

/// Connections that wait to be accepted: as many as std has it for listeners.
const BACKLOG: i32 = 128;

/// How long a process may take to pause.
const PAUSE_PATIENCE: Duration = Duration::from_secs(3);

/// Why there is no such process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port of the host's.
    #[error("cannot publish port {0}: {1}; choose another port or address")]
    Port(Published, #[source] io::Error),
    /// The process.
    #[error("cannot start the network process: {0}; use --net none to run without a network")]
    Process(#[from] io::Error),
}

/// Starts it for one guest with this end of the cable; it confines itself, if it is to.
///
/// # Errors
///
/// A port cannot be had, or the host does not start processes.
pub fn start(
    end: &OwnedFd,
    published: &[Published],
    reaches_host: bool,
    confine: bool,
) -> Result<(), Error> {
    let (ports, order) = Ports::bind(published)?.order(end, reaches_host, confine);
    Ok(launch(end, &order, &ports, std::iter::empty()).map(drop)?)
}

/// Starts it for a pod, at the packet socket `interface`, until the other end of `line` is closed. It is confined. If
/// the pod has neighbours, they are told over the socket that comes with them: lines with an address and a name.
///
/// # Errors
///
/// The host does not start processes.
pub fn start_at_interface(
    interface: &OwnedFd,
    line: &OwnedFd,
    ports: Ports,
    reaches_host: bool,
    neighbours: Option<(Neighbours, &OwnedFd)>,
) -> io::Result<Child> {
    widen(interface)?;
    let (ports, mut order) = ports.order(interface, reaches_host, true);
    order.line = Some(line.as_raw_fd());
    order.neighbours = neighbours.map(|(neighbours, _)| neighbours);
    order.names = neighbours.map(|(_, names)| names.as_raw_fd());
    let with_it = [Some(line), neighbours.map(|(_, names)| names)];
    launch(interface, &order, &ports, with_it.into_iter().flatten())
}

/// Starts it for a machine that shares a network, with this end of the cable; it confines itself, if it is to. `names`
/// is where its neighbours are told.
///
/// # Errors
///
/// The host does not start processes.
pub fn start_among(
    end: &OwnedFd,
    (ports, reaches_host, confine): (Ports, bool, bool),
    (neighbours, names): (Neighbours, &OwnedFd),
    way: &Way,
) -> io::Result<()> {
    let (ports, mut order) = ports.order(end, reaches_host, confine);
    order.neighbours = Some(neighbours);
    order.names = Some(names.as_raw_fd());
    let ways = [&way.frames, &way.connection, &way.bell];
    order.way = Some(ways.map(AsRawFd::as_raw_fd));
    launch(end, &order, &ports, ways.into_iter().chain([names])).map(drop)
}

/// Starts it with its cable, its ports and more descriptors, which nobody else inherits.
fn launch<'a>(
    cable: &OwnedFd,
    order: &Serving,
    ports: &Ports,
    with_it: impl Iterator<Item = &'a OwnedFd> + Clone,
) -> io::Result<Child> {
    ports.inherit()?;
    with_it.clone().try_for_each(|it| fcntl_setfd(it, FdFlags::empty()))?;
    let child = spawn_with(cable, &mut helper(KIND, order)?);
    with_it.clone().try_for_each(|it| fcntl_setfd(it, FdFlags::CLOEXEC))?;
    child
}

/// Has a process that was started for a pod's interface receive and send nothing, from when this returns on.
///
/// # Errors
///
/// It has ended, or does not answer in time.
pub fn pause(line: &UnixStream) -> io::Result<()> {
    (&mut &*line).write_all(&[Line::Pause.byte()])?;
    let deadline = Instant::now().checked_add(PAUSE_PATIENCE);
    if wait_for(line, PollFlags::IN, deadline)?.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the network's process does not answer",
        ));
    }
    (&mut &*line).read_exact(&mut [0])
}

/// Has it do both again.
///
/// # Errors
///
/// It has ended.
pub fn resume(line: &UnixStream) -> io::Result<()> {
    (&mut &*line).write_all(&[Line::Resume.byte()])
}

/// Has a packet socket receive as much at a time as the host allows.
///
/// # Errors
///
/// The host's.
pub fn widen(interface: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(interface, BUFFER_BYTES)?)
}

/// Starts the same for several guests, whom a router at the cable's other end tells apart, and which none reaches
/// from outside; returns that end. Nobody of them reaches this host. What it says is for `messages`.
///
/// # Errors
///
/// The host does not start processes.
pub fn start_for_several(several: Several, messages: File, confine: bool) -> io::Result<OwnedFd> {
    let (ours, theirs) = pair()?;
    let order = Serving {
        cable: theirs.as_raw_fd(),
        line: None,
        reaches_host: false,
        several: Some(several),
        neighbours: None,
        names: None,
        way: None,
        tcp: vec![],
        udp: vec![],
        confined: confine,
    };
    let mut command = helper(KIND, &order)?;
    spawn_with(&theirs, command.stderr(messages))?;
    Ok(ours)
}

/// Published ports of the host's, which are bound.
#[derive(Debug, Default)]
pub struct Ports(Vec<(Published, OwnedFd)>);

impl Ports {
    /// Binds them.
    ///
    /// # Errors
    ///
    /// One cannot be had: [`Error::Port`].
    pub fn bind(published: &[Published]) -> Result<Ports, Error> {
        published.iter().map(|it| Ok((*it, bind(it)?))).collect::<Result<_, _>>().map(Ports)
    }

    /// What a process is ordered with that has them.
    fn order(self, cable: &OwnedFd, reaches_host: bool, confined: bool) -> (Ports, Serving) {
        let of = |is_udp| {
            let ports = self.0.iter().filter(move |(published, _)| published.is_udp == is_udp);
            ports.map(|(published, bound)| (bound.as_raw_fd(), published.guest)).collect()
        };
        let (tcp, udp, cable) = (of(false), of(true), cable.as_raw_fd());
        let order = Serving {
            cable,
            line: None,
            reaches_host,
            several: None,
            neighbours: None,
            names: None,
            way: None,
            tcp,
            udp,
            confined,
        };
        (self, order)
    }

    /// Has the next process inherit them; to be dropped when it has.
    fn inherit(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|(_, bound)| Ok(fcntl_setfd(bound, FdFlags::empty())?))
    }
}

/// Binds a port.
///
/// # Errors
///
/// It cannot be had: [`Error::Port`].
pub fn bind(published: &Published) -> Result<OwnedFd, Error> {
    let address = SocketAddr::new(published.address, published.host);
    let bound = match (published.is_udp, address) {
        (is_udp, SocketAddr::V6(address)) => bind_ipv6(&address, is_udp),
        (true, _) => UdpSocket::bind(address).map(OwnedFd::from),
        (false, _) => TcpListener::bind(address).map(OwnedFd::from),
    };
    bound.map_err(|error| Error::Port(*published, error))
}

/// The same for an address of IPv6, whose sockets would have IPv4's as well otherwise (ipv6(7), `IPV6_V6ONLY`).
fn bind_ipv6(address: &SocketAddrV6, is_udp: bool) -> io::Result<OwnedFd> {
    let kind = if is_udp { SocketType::DGRAM } else { SocketType::STREAM };
    let socket = socket_with(AddressFamily::INET6, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_ipv6_v6only(&socket, true)?;
    if !is_udp {
        // As std has it for listeners.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    rustix::net::bind(&socket, address)?;
    if !is_udp {
        listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}

/// Both ends of a cable.
///
/// # Errors
///
/// The host's.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let ends = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for end in [&ends.0, &ends.1] {
        sockopt::set_socket_send_buffer_size(end, BUFFER_BYTES)?;
    }
    Ok(ends)
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

/// Those with whom a guest shares its network, whose frames go another way.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbours {
    /// The guest's address.
    pub guest: Ipv4Addr,
    /// Its Ethernet address.
    pub card: [u8; 6],
    /// Its gateway, which is its name server as well.
    pub gateway: Ipv4Addr,
    /// Bits of the network's prefix.
    pub bits: u8,
}

/// What that process is started with: numbers of descriptors that are open.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serving {
    /// The cable, or a packet socket if there is a line.
    pub cable: i32,
    /// What is closed when the process is to end, if the cable is a packet socket.
    pub line: Option<i32>,
    /// The guest reaches this host.
    pub reaches_host: bool,
    /// There are several guests.
    pub several: Option<Several>,
    /// The guest has neighbours.
    pub neighbours: Option<Neighbours>,
    /// Where they are told.
    pub names: Option<i32>,
    /// The ways of a machine to them: those of [`Way`], in their order.
    pub way: Option<[i32; 3]>,
    /// What listens, and the guest's port to which it leads.
    pub tcp: Vec<(i32, u16)>,
    /// The same of UDP.
    pub udp: Vec<(i32, u16)>,
    /// It may make the system calls only that it needs.
    pub confined: bool,
}

impl Serving {
    /// The descriptors that it is given.
    #[must_use]
    pub fn passed(&self) -> Vec<i32> {
        let ports = self.tcp.iter().chain(&self.udp).map(|&(number, _)| number);
        let way = self.way.into_iter().flatten();
        ports.chain([self.cable]).chain(self.line).chain(self.names).chain(way).collect()
    }
}

/// What that process does.
///
/// # Errors
///
/// It cannot be confined, or the host fails.
pub fn serve(serving: &Serving) -> io::Result<()> {
    host::inherited::close_marked();
    let take = |number: i32| host::inherited::take(number);
    let cable = take(serving.cable)?;
    let cable = match serving.line {
        None => Cable::Stream(cable),
        Some(line) => Cable::Interface { socket: cable, line: take(line)? },
    };
    let addresses = addresses(serving);
    let card = serving.neighbours.map_or(CARD, |neighbours| neighbours.card);
    let card = serving.several.is_none().then_some(card);
    let names = serving.names.map(take).transpose()?;
    let mut plan = Plan { addresses, mtu: MTU, card, tcp: vec![], udp: vec![], names };
    for &(descriptor, guest) in &serving.tcp {
        plan.tcp.push((take(descriptor)?.into(), guest));
    }
    for &(descriptor, guest) in &serving.udp {
        plan.udp.push((take(descriptor)?.into(), guest));
    }
    // A socket for each connection.
    host::raise_descriptor_limit();
    let mut server = Server::new(cable, plan)?;
    if let Some([frames, connection, bell]) = serving.way {
        let way = Way { frames: take(frames)?, connection: take(connection)?, bell: take(bell)? };
        server = server.with_neighbours(way)?;
    }
    if serving.confined {
        host::privileges::drop_all()?;
        host::confine::confine_network().map_err(io::Error::other)?;
    }
    server.run()
}

fn addresses(serving: &Serving) -> Addresses {
    // Without one, it is this host (resolv.conf(5)).
    let resolver = resolver().unwrap_or(Ipv4Addr::LOCALHOST);
    let one = Addresses {
        guest: GUEST,
        gateway: GATEWAY,
        host: serving.reaches_host.then_some(Ipv4Addr::LOCALHOST),
        nameserver: NAMESERVER,
        prefix_bits: PREFIX_BITS,
        resolver: Some(SocketAddrV4::new(resolver, DNS)),
    };
    match (serving.several, serving.neighbours) {
        (None, None) => one,
        (None, Some(Neighbours { guest, gateway, bits, .. })) => {
            Addresses { guest, gateway, nameserver: gateway, prefix_bits: bits, ..one }
        }
        (Some(Several { gateway, bits }), _) => Addresses {
            // Nobody: no port leads to one of them.
            guest: Ipv4Addr::UNSPECIFIED,
            gateway,
            nameserver: gateway,
            prefix_bits: bits,
            ..one
        },
    }
}

/// The host's resolver of names, if IPv4 reaches one (resolv.conf(5)).
#[must_use]
pub fn resolver() -> Option<Ipv4Addr> {
    first_resolver(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
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

    #[test]
    fn a_port_is_had_once() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let host = free.local_addr().unwrap().port();
        let address = Ipv4Addr::LOCALHOST;
        let published = Published { address: address.into(), host, guest: 80, is_udp: false };
        let refused = Ports::bind(&[published]).unwrap_err().to_string();
        assert!(refused.contains(&format!("cannot publish port 127.0.0.1:{host}:80")), "{refused}");
        drop(free);
        let (ports, order) =
            Ports::bind(&[published]).unwrap().order(&pair().unwrap().0, false, true);
        assert_eq!(order.tcp, [(ports.0[0].1.as_raw_fd(), 80)]);
        assert_eq!((order.udp, order.line), (vec![], None));
    }
}

//! The network of our own: `biv` starts itself again, under a verb that no user needs, with one end of the
//! cable and the published ports, which are bound here. That process confines itself, serves, and ends with
//! the cable.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use network::{Addresses, Plan, Server};
use rustix::io::{FdFlags, fcntl_setfd};

use super::{CARD, GATEWAY, GUEST, MTU, NAMESERVER, PREFIX_BITS, Published};
use crate::cli::NetworkProcess;

/// The port on which names are asked for.
const DNS: u16 = 53;

/// Starts it with this end of the cable; it confines itself, if it is to.
pub fn start(end: &OwnedFd, published: &[Published], confine: bool) -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    // Neither the terminal's signals nor its input are for it.
    command.arg("network").process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
    command.args(["--cable", &end.as_raw_fd().to_string()]);
    if !confine {
        command.arg("--unconfined");
    }
    let mut inherited = Vec::new();
    for published in published {
        let host = (published.address.unwrap_or(Ipv4Addr::UNSPECIFIED), published.host);
        let (option, bound): (_, OwnedFd) = match published.is_udp {
            true => ("--udp", UdpSocket::bind(host)?.into()),
            false => ("--tcp", TcpListener::bind(host)?.into()),
        };
        command.args([option, &format!("{}:{}", bound.as_raw_fd(), published.guest)]);
        inherited.push(bound);
    }
    inherited.iter().try_for_each(|file| fcntl_setfd(file, FdFlags::empty()))?;
    super::passt::spawn_with(end, &mut command).map(drop)
}

/// What that process does.
pub fn serve(arguments: &NetworkProcess) -> io::Result<()> {
    let take = |number: i32| host::inherited::take(number);
    let cable = take(arguments.cable)?;
    let mut plan = Plan { addresses: addresses(), mtu: MTU, card: CARD, tcp: vec![], udp: vec![] };
    for port in &arguments.tcp {
        plan.tcp.push((take(port.descriptor)?.into(), port.guest));
    }
    for port in &arguments.udp {
        plan.udp.push((take(port.descriptor)?.into(), port.guest));
    }
    allow_many_descriptors();
    let mut server = Server::new(cable, plan)?;
    if !arguments.unconfined {
        host::confine::confine_network().map_err(io::Error::other)?;
    }
    server.run()
}

/// A socket for each connection: as many as the user may have.
fn allow_many_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

fn addresses() -> Addresses {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    // Without one, it is this host (resolv.conf(5)).
    let resolver = first_resolver(&text).unwrap_or(Ipv4Addr::LOCALHOST);
    Addresses {
        guest: GUEST,
        gateway: GATEWAY,
        host: Some(Ipv4Addr::LOCALHOST),
        nameserver: NAMESERVER,
        prefix_bits: PREFIX_BITS,
        resolver: Some(SocketAddrV4::new(resolver, DNS)),
    }
}

/// The first resolver that IPv4 reaches.
pub fn first_resolver(text: &str) -> Option<Ipv4Addr> {
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

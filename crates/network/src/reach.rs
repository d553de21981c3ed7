//! Which addresses a guest may reach: the world, and the host only where the user allows it.
//!
//! 1. *The server judges the address that a socket is about to be connected to*, after it has
//!    replaced the gateway's and the name server's. Names, and other ways of writing an address,
//!    are resolved by then.
//! 2. *The server asks the host's kernel whether an address is the host's own*, when a connection
//!    is opened and when a port of the guest's first sends there: interfaces and their addresses
//!    come and go while a machine runs. It connects a datagram socket to the address, which sends
//!    nothing. If the kernel then chooses the same address as the source, the address is the host's
//!    own (`ip_route_output_key_hash_rcu` in Linux's net/ipv4/route.c: a local route's source is
//!    its destination).
//! 3. *What cannot be judged is refused.*

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use crate::addresses::Addresses;

impl Addresses {
    /// Where the host sends what the guest sends there; `None` for what the guest may not reach.
    pub fn reach(&self, to: SocketAddrV4) -> Option<SocketAddrV4> {
        let outward = self.outward(to)?;
        let may_be_host = self.host.is_some() || self.is_ours(*to.ip());
        (may_be_host || !is_hosts_own(*outward.ip())).then_some(outward)
    }
}

/// Whether what is sent there stays on this host. What cannot be reached at all counts as that.
fn is_hosts_own(address: Ipv4Addr) -> bool {
    /// Any port will do: nothing is sent.
    const DISCARD: u16 = 9;
    let source = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((address, DISCARD))?;
        socket.local_addr()
    };
    match source() {
        Ok(SocketAddr::V4(source)) => *source.ip() == address || source.ip().is_loopback(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_own_addresses_are_known() {
        assert!(is_hosts_own(Ipv4Addr::LOCALHOST));
        assert!(is_hosts_own(Ipv4Addr::new(127, 1, 2, 3)));
        for own in own_addresses() {
            assert!(is_hosts_own(own), "{own}");
        }
    }

    #[test]
    fn they_are_reached_only_through_what_stands_for_them() {
        let open = crate::tests::addresses();
        let closed = Addresses { host: None, ..open };
        let to = |address| SocketAddrV4::new(address, 53);
        // The host's resolver may be on its loopback interface.
        assert!(closed.reach(to(closed.nameserver)).is_some());
        for own in own_addresses() {
            assert_eq!(closed.reach(to(own)), None, "{own}");
            assert_eq!(open.reach(to(own)), Some(to(own)));
        }
    }

    /// The addresses of this host's interfaces but for the loopback one, as far as the kernel's table of local
    /// routes has them.
    fn own_addresses() -> Vec<Ipv4Addr> {
        let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        let local = lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL");
        let all = local.filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok());
        all.filter(|address| !address.is_loopback()).collect()
    }
}

//! The addresses of the guest's network, and the host's addresses that they stand for.

use std::net::{Ipv4Addr, SocketAddrV4};

/// The port on which names are asked for.
const DNS: u16 = 53;

/// The addresses of a guest's network.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// The guest.
    pub guest: Ipv4Addr,
    /// Its gateway.
    pub gateway: Ipv4Addr,
    /// The host's address that the gateway stands for; `None` where the guest may not reach the host.
    pub host: Option<Ipv4Addr>,
    /// Whom it asks for names.
    pub nameserver: Ipv4Addr,
    /// Bits of the network's prefix.
    pub prefix_bits: u8,
    /// Whom the host asks.
    pub resolver: Option<SocketAddrV4>,
}

impl Addresses {
    /// Where the host sends what the guest sends there; `None` for what goes nowhere.
    pub fn outward(&self, to: SocketAddrV4) -> Option<SocketAddrV4> {
        let address = *to.ip();
        // The gateway may be the name server as well.
        if self.is_nameserver(to) {
            return self.resolver;
        }
        if address == self.gateway {
            return self.host.map(|host| SocketAddrV4::new(host, to.port()));
        }
        let is_nowhere = address.is_loopback()
            || address.is_multicast()
            || address.is_broadcast()
            || address.octets()[0] == 0
            || self.is_inside(address);
        let is_closed = self.host.is_none() && is_near(address);
        (!is_nowhere && !is_closed && to.port() != 0).then_some(to)
    }

    /// Whether who is asked there is asked for names.
    pub fn is_nameserver(&self, to: SocketAddrV4) -> bool {
        *to.ip() == self.nameserver && to.port() == DNS
    }

    /// Whether it is one of us, who answer for ourselves.
    pub fn is_ours(&self, address: Ipv4Addr) -> bool {
        address == self.gateway || address == self.nameserver
    }

    fn is_inside(&self, address: Ipv4Addr) -> bool {
        (self.gateway.to_bits() ^ address.to_bits()) & self.mask() == 0
    }

    /// Whether a refusal may be answered: nobody answers for many (RFC 1122, 3.2.2).
    pub fn is_one(&self, address: Ipv4Addr) -> bool {
        let last = self.is_inside(address) && address.to_bits() | self.mask() == u32::MAX;
        !(last || address.is_multicast() || address.is_broadcast() || address.is_unspecified())
    }

    /// The network's mask.
    pub fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix_bits)).unwrap_or(0)
    }
}

/// Where clouds tell a host who it is, and give it its credentials, outside of 169.254.0.0/16: Azure's
/// WireServer and Alibaba Cloud's metadata service.
const METADATA: [Ipv4Addr; 2] =
    [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200)];

/// Whether this is an address of the host's surroundings: what answers there takes the guest for the host.
fn is_near(address: Ipv4Addr) -> bool {
    address.is_link_local() || METADATA.contains(&address)
}

#[cfg(test)]
mod tests {

    #[test]
    fn addresses_lead_where_they_should() {
        let addresses = crate::tests::addresses();
        let check = |to: &str, expected: Option<&str>| {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(addresses.outward(to.parse().unwrap()), expected, "{to}");
        };
        check("93.184.216.34:80", Some("93.184.216.34:80"));
        check("10.0.2.2:80", Some("127.0.0.1:80"));
        check("10.0.2.3:53", Some("127.0.0.53:53"));
        for nowhere in [
            "10.0.2.3:80",
            "10.0.2.15:1",
            "10.0.2.255:9",
            "127.0.0.1:22",
            "224.0.0.1:1",
            "255.255.255.255:67",
            "0.0.0.0:1",
            "1.2.3.4:0",
        ] {
            check(nowhere, None);
        }
        check("169.254.169.254:80", Some("169.254.169.254:80"));
    }

    #[test]
    fn the_gateway_may_be_the_name_server() {
        let addresses = crate::tests::addresses();
        let closed = crate::Addresses { nameserver: addresses.gateway, host: None, ..addresses };
        let outward = |to: &str| closed.outward(to.parse().unwrap());
        assert_eq!(outward("10.0.2.2:53"), closed.resolver);
        assert_eq!(outward("10.0.2.2:80"), None);
        assert_eq!(outward("10.0.2.3:53"), None);
    }

    #[test]
    fn without_the_host_its_surroundings_are_closed() {
        let addresses = crate::Addresses { host: None, ..crate::tests::addresses() };
        let check = |to: &str, is_open: bool| {
            assert_eq!(addresses.outward(to.parse().unwrap()).is_some(), is_open, "{to}");
        };
        for closed in [
            "10.0.2.2:80",
            "127.0.0.1:80",
            "169.254.169.254:80",
            "169.254.0.1:53",
            "168.63.129.16:80",
            "100.100.100.200:80",
        ] {
            check(closed, false);
        }
        for open in ["10.0.2.3:53", "93.184.216.34:80", "192.168.1.1:80", "169.253.255.255:80"] {
            check(open, true);
        }
    }

    #[test]
    fn only_one_address_is_answered_for() {
        let addresses = crate::tests::addresses();
        let check = |address: &str, expected| {
            assert_eq!(addresses.is_one(address.parse().unwrap()), expected, "{address}");
        };
        check("10.0.2.2", true);
        check("127.0.0.1", true);
        for many in ["10.0.2.255", "255.255.255.255", "224.0.0.251", "0.0.0.0"] {
            check(many, false);
        }
    }
}

//! Who is who: the guest's network, and what of the host it stands for.

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
    /// The host's address for which that stands, if it stands for one.
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
        if address == self.gateway {
            return self.host.map(|host| SocketAddrV4::new(host, to.port()));
        }
        if address == self.nameserver {
            return self.resolver.filter(|_| to.port() == DNS);
        }
        let is_nowhere = address.is_loopback()
            || address.is_multicast()
            || address.is_broadcast()
            || address.octets()[0] == 0
            || self.is_inside(address);
        (!is_nowhere && to.port() != 0).then_some(to)
    }

    /// Whether it is one of us, who answer for ourselves.
    pub fn is_ours(&self, address: Ipv4Addr) -> bool {
        address == self.gateway || address == self.nameserver
    }

    fn is_inside(&self, address: Ipv4Addr) -> bool {
        (self.gateway.to_bits() ^ address.to_bits()) & self.mask() == 0
    }

    /// The network's mask.
    pub fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix_bits)).unwrap_or(0)
    }
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
    }
}

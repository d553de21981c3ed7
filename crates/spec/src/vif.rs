//! The virtual interface of a domain of Xen's interface, in a network between domains.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Name, Other, is_default, size};

/// The network that is meant where none is named.
const NETWORK: &str = "default";

/// Bits of a prefix: where none are said, and those that there may be.
const PREFIX_BITS: u8 = 24;
const LEAST_BITS: u8 = 16;
const MOST_BITS: u8 = 30;

/// A virtual interface (VIF). The router of its network connects it to other domains' and to the world, sees to it that
/// the domain sends as nobody else, and keeps its rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Vif {
    /// Its address of IP.
    pub ip: Ipv4Addr,
    /// Bits of the network's prefix, the same for all who are connected [default: 24].
    #[serde(default = "prefix_bits", skip_serializing_if = "is_prefix_bits")]
    pub bits: u8,
    /// Its address of Ethernet [default: one that follows from that of IP].
    #[serde(default, skip_serializing_if = "is_default")]
    pub mac: Option<String>,
    /// The network's name.
    #[serde(default = "network", skip_serializing_if = "is_network")]
    #[schemars(with = "String")]
    pub net: Name,
    /// Bytes a second that it may send at most.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate: Option<u64>,
    /// Its first rules, a line each; `biv xen rules` changes them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rules: Vec<String>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

const fn prefix_bits() -> u8 {
    PREFIX_BITS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_prefix_bits(bits: &u8) -> bool {
    *bits == PREFIX_BITS
}

fn network() -> Name {
    NETWORK.parse().unwrap_or_else(|_| Name::generated(0))
}

fn is_network(name: &Name) -> bool {
    name.as_str() == NETWORK
}

impl Vif {
    /// One with this address in the default network.
    #[must_use]
    pub fn new(ip: Ipv4Addr) -> Self {
        let (bits, net) = (PREFIX_BITS, network());
        Self { ip, bits, mac: None, net, rate: None, rules: Vec::new(), other: Other::default() }
    }

    /// The network's first address: its gateway to the world, and its name server.
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.ip.to_bits() & self.mask() | 1)
    }

    fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0)
    }

    /// Its address of Ethernet: that which it was given, or one of Xen's own that ends like its address of IP.
    ///
    /// # Errors
    ///
    /// What it was given is none.
    pub fn mac(&self) -> Result<[u8; 6], String> {
        let Some(text) = &self.mac else {
            let [_, b, c, d] = self.ip.octets();
            return Ok([0x00, 0x16, 0x3e, b, c, d]);
        };
        let wrong = || {
            let one = "an address of Ethernet that is not a group's, such as 00:16:3e:00:00:01";
            format!("mac={text}: expected {one}")
        };
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        let is_one = parts.next().is_none() && mac[0] & 1 == 0 && mac != [0; 6];
        is_one.then_some(mac).ok_or_else(wrong)
    }

    /// Whether it makes sense.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.mac()?;
        if !(LEAST_BITS..=MOST_BITS).contains(&self.bits) {
            return Err(format!(
                "a VIF's network has {LEAST_BITS} to {MOST_BITS} bits, as in ip=10.77.0.2/24"
            ));
        }
        let host = self.ip.to_bits() & !self.mask();
        let is_one = host > 1 && host != !self.mask() && !self.ip.is_multicast();
        if !is_one || self.ip.is_loopback() || self.ip.is_broadcast() || self.ip.octets()[0] == 0 {
            return Err(format!(
                "ip={}: not an address that a domain can have: the first of a network is its \
                 gateway's, the last is everybody's",
                self.ip
            ));
        }
        match self.rate {
            Some(0) => Err("rate=0: a domain that may send nothing needs no VIF".to_owned()),
            _ => Ok(()),
        }
    }
}

impl FromStr for Vif {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const KNOWN: &str = "ip=ADDRESS[/BITS], mac=ADDRESS, net=NAME and rate=BYTES";
        let mut vif = None;
        let mut rest = Vec::new();
        for option in text.split(',') {
            match option.split_once('=') {
                Some(("ip", _)) if vif.is_some() => return Err("ip is said twice".to_owned()),
                Some(("ip", value)) => vif = Some(with_bits(value)?),
                Some(option) => rest.push(option),
                None => return Err(format!("unknown option {option:?}; a VIF takes {KNOWN}")),
            }
        }
        let mut vif = vif.ok_or("a VIF has an address: ip=10.77.0.2")?;
        for (name, value) in rest {
            match name {
                "mac" => vif.mac = Some(value.to_owned()),
                "net" => vif.net = value.parse().map_err(|error| format!("net: {error}"))?,
                "rate" => vif.rate = Some(size::parse(value).map_err(|error| error.to_string())?),
                _ => return Err(format!("unknown option {name:?}; a VIF takes {KNOWN}")),
            }
        }
        vif.check()?;
        Ok(vif)
    }
}

/// An address with the bits of its network, if these are said.
fn with_bits(text: &str) -> Result<Vif, String> {
    let wrong =
        || format!("ip={text}: expected an address of IPv4, such as 10.77.0.2 or 10.77.0.2/24");
    let (ip, bits) = match text.split_once('/') {
        Some((ip, bits)) => (ip, bits.parse().map_err(|_| wrong())?),
        None => (text, PREFIX_BITS),
    };
    Ok(Vif { bits, ..Vif::new(ip.parse().map_err(|_| wrong())?) })
}

impl fmt::Display for Vif {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ip={}", self.ip)?;
        if self.bits != PREFIX_BITS {
            write!(out, "/{}", self.bits)?;
        }
        self.mac.iter().try_for_each(|mac| write!(out, ",mac={mac}"))?;
        if !is_network(&self.net) {
            write!(out, ",net={}", self.net)?;
        }
        self.rate.iter().try_for_each(|rate| write!(out, ",rate={rate}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_as_they_are_written() {
        let check = |text: &str| {
            let vif: Vif = text.parse().unwrap();
            assert_eq!(vif.to_string(), text);
            vif
        };
        let vif = check("ip=10.77.0.2");
        assert_eq!((vif.gateway(), vif.bits), (Ipv4Addr::new(10, 77, 0, 1), 24));
        assert_eq!(vif.mac(), Ok([0x00, 0x16, 0x3e, 77, 0, 2]));
        let vif = check("ip=172.16.3.4/16,mac=02:00:00:00:00:0a,net=back,rate=1000000");
        assert_eq!(vif.gateway(), Ipv4Addr::new(172, 16, 0, 1));
        assert_eq!(vif.mac(), Ok([2, 0, 0, 0, 0, 10]));
        for wrong in [
            "",
            "10.77.0.2",
            "ip=10.77.0.1",
            "ip=10.77.0.0",
            "ip=10.77.0.255",
            "ip=127.0.0.2",
            "ip=10.77.0.2/8",
            "ip=10.77.0.2/31",
            "ip=10.77.0.2,ip=10.77.0.3",
            "ip=10.77.0.2,mac=01:00:00:00:00:01",
            "ip=10.77.0.2,mac=2:0:0:0:0:1",
            "ip=10.77.0.2,net=../x",
            "ip=10.77.0.2,rate=0",
            "ip=10.77.0.2,mtu=9",
            "ip=fd00::2",
        ] {
            assert!(wrong.parse::<Vif>().is_err(), "{wrong}");
        }
    }
}

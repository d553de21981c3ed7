//! Addresses of Ethernet, and prefixes of those of IP.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address of Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether it is a group's, as the broadcast address is: the lowest bit of the first byte (IEEE 802, 8.2).
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The link-local address that a host makes of it (RFC 4291, appendix A).
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(to, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// It is no address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an address of Ethernet looks like 02:16:3e:00:00:01")]
pub struct NoMac;

impl FromStr for Mac {
    type Err = NoMac;

    fn from_str(text: &str) -> Result<Self, NoMac> {
        let mut bytes = [0; 6];
        let mut words = text.split(':');
        for byte in &mut bytes {
            let word = words.next().ok_or(NoMac)?;
            if word.len() > 2 || !word.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(NoMac);
            }
            *byte = u8::from_str_radix(word, 16).map_err(|_| NoMac)?;
        }
        words.next().map_or(Ok(Self(bytes)), |_| Err(NoMac))
    }
}

/// All addresses of IP that begin with the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

/// The bits of an address, and how many it has.
fn bits_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// The address with only its first bits.
fn beginning(address: IpAddr, bits: u8) -> IpAddr {
    let (value, width) = bits_of(address);
    let left = u32::from(width.saturating_sub(bits));
    let kept = value.checked_shr(left).and_then(|it| it.checked_shl(left)).unwrap_or(0);
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(kept as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(kept)),
    }
}

impl Prefix {
    /// One; none if there are not so many bits, or the address goes on after them.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let fits = bits <= bits_of(address).1 && beginning(address, bits) == address;
        fits.then_some(Self { address, bits })
    }

    /// Whether an address begins with it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && beginning(address, self.bits) == self.address
    }

    /// Whether its addresses are of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self { address, bits: bits_of(address).1 }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits == bits_of(self.address).1 {
            true => write!(to, "{}", self.address),
            false => write!(to, "{}/{}", self.address, self.bits),
        }
    }
}

/// Why a text is no prefix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoPrefix {
    /// It has another form.
    #[error("a prefix looks like 10.1.0.0/16, 10.1.2.3, 2001:db8::/32 or 2001:db8::1")]
    Form,
    /// An address does not have so many bits.
    #[error("an address of this kind has {0} bits")]
    TooLong(u8),
    /// There are bits after it.
    #[error("its address goes on after {1} bits: write {0}/{1} for all that begin so")]
    GoesOn(IpAddr, u8),
}

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NoPrefix::Form)?;
        let Some(bits) = bits else { return Ok(Self::from(address)) };
        if !bits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(NoPrefix::Form);
        }
        let bits: u8 = bits.parse().map_err(|_| NoPrefix::Form)?;
        let width = bits_of(address).1;
        match Self::new(address, bits) {
            Some(prefix) => Ok(prefix),
            None if bits > width => Err(NoPrefix::TooLong(width)),
            None => Err(NoPrefix::GoesOn(beginning(address, bits), bits)),
        }
    }
}

/// A port of a router.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortId {
    /// A domain's virtual interface.
    Vif(u16),
    /// Where the rest of the world is.
    Uplink,
}

impl fmt::Display for PortId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vif(number) => write!(to, "vif {number}"),
            Self::Uplink => to.write_str("uplink"),
        }
    }
}

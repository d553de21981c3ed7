//! Published ports as they are typed: one, a range, or one for which any port of the host will do.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use crate::Published;

/// What is wrong with others.
const EXPECTED: &str = "give [IP:][HOSTPORT:]GUESTPORT[/udp], such as 8080:80, 80, [::1]:8080:80, \
                        or 8000-8009:8000-8009";

/// Ports of the host, and as many of the guest, in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    address: IpAddr,
    /// The first one of the host's; none: any that is free.
    host: Option<u16>,
    /// The first one of the guest's.
    guest: u16,
    count: u16,
    is_udp: bool,
}

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (ports, is_udp) = match text.split_once('/') {
            Some((ports, "udp")) => (ports, true),
            Some((ports, "tcp")) => (ports, false),
            Some(_) => return Err(EXPECTED),
            None => (text, false),
        };
        // An address of IPv6 has colons itself, and is in brackets.
        let bracketed = ports.strip_prefix('[').map(|rest| rest.split_once("]:"));
        let (bracketed, ports) = match bracketed {
            Some(Some((address, ports))) => (Some(address), ports),
            Some(None) => return Err(EXPECTED),
            None => (None, ports),
        };
        let parts: Vec<&str> = bracketed.into_iter().chain(ports.split(':')).collect();
        let (address, host, guest) = match *parts {
            [_, _] if bracketed.is_some() => return Err(EXPECTED),
            [guest] => (None, None, guest),
            [host, guest] => (None, Some(host), guest),
            // As podman has it: any port of that address.
            [address, "", guest] => (Some(address), None, guest),
            [address, host, guest] => (Some(address), Some(host), guest),
            _ => return Err(EXPECTED),
        };
        // Who wants others to reach it says so.
        let is_bracketed = bracketed.is_some();
        let address = match address {
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(text) => text.parse().map_err(|_| EXPECTED)?,
        };
        if address.is_ipv6() != is_bracketed {
            return Err(EXPECTED);
        }
        let (guest, count) = range(guest)?;
        let host = host.map(range).transpose()?;
        match host {
            Some((_, other)) if other != count => {
                Err("the host's ports and the guest's are not equally many")
            }
            _ => {
                let host = host.map(|(first, _)| first);
                Ok(Self { address, host, guest, count, is_udp })
            }
        }
    }
}

/// The first port of a range, and how many there are.
fn range(text: &str) -> Result<(u16, u16), &'static str> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0).ok_or(EXPECTED);
    let (first, last) = (port(first)?, port(last)?);
    match last.checked_sub(first) {
        Some(more) => Ok((first, more.saturating_add(1))),
        None => Err("a range of ports ends before it begins"),
    }
}

impl Ports {
    /// Each of them; `choose` has a free port of the host at an address, of UDP or not, for one of the guest.
    ///
    /// # Errors
    ///
    /// Those of `choose`.
    pub fn each<E>(
        self,
        mut choose: impl FnMut(IpAddr, bool, u16) -> Result<u16, E>,
    ) -> Result<Vec<Published>, E> {
        let Self { address, host, guest, count, is_udp } = self;
        let one = |number| {
            // Both ranges end within the ports that there are.
            let guest = guest + number;
            let host =
                host.map_or_else(|| choose(address, is_udp, guest), |host| Ok(host + number))?;
            Ok(Published { address, host, guest, is_udp })
        };
        (0..count).map(one).collect()
    }

    /// The only one, if that is said of both sides.
    #[must_use]
    pub fn only(self) -> Option<Published> {
        let Self { address, host, guest, count, is_udp } = self;
        Some(Published { address, host: host.filter(|_| count == 1)?, guest, is_udp })
    }
}

impl FromStr for Published {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Ports>()?.only().ok_or("give one port of the host and one of the guest")
    }
}

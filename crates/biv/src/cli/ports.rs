//! Published ports as they are typed: one, a range, or one for which any port of the host will do.

use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::str::FromStr;

use domain::say::say;
use spec::Published;

/// What is wrong with others.
const EXPECTED: &str =
    "give [IP:][HOSTPORT:]GUESTPORT[/udp], such as 8080:80, 80, or 8000-8009:8000-8009";

/// Ports of the host, and as many of the guest, in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    address: Ipv4Addr,
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
        let parts: Vec<&str> = ports.split(':').collect();
        let (address, host, guest) = match *parts {
            [guest] => (None, None, guest),
            [host, guest] => (None, Some(host), guest),
            // As podman has it: any port of that address.
            [address, "", guest] => (Some(address), None, guest),
            [address, host, guest] => (Some(address), Some(host), guest),
            _ => return Err(EXPECTED),
        };
        // Who wants others to reach it says so.
        let address = address.map_or(Ok(Ipv4Addr::LOCALHOST), str::parse).map_err(|_| EXPECTED)?;
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
    /// Each of them. Where a port of the host is chosen, it is said which.
    fn each(self) -> io::Result<Vec<Published>> {
        let Self { address, host, guest, count, is_udp } = self;
        let one = |number| {
            // Both ranges end within the ports that there are.
            let guest = guest + number;
            let host = match host {
                Some(host) => host + number,
                None => {
                    let host = free_port(address, is_udp)?;
                    say(&format!("port {guest} of the guest is {address}:{host} here"));
                    host
                }
            };
            Ok(Published { address, host, guest, is_udp })
        };
        (0..count).map(one).collect()
    }
}

/// The ports that these options publish.
///
/// # Errors
///
/// No port is free.
pub fn published(ports: Vec<Ports>) -> Result<Vec<Published>, String> {
    let each = ports.into_iter().map(Ports::each).collect::<io::Result<Vec<_>>>();
    Ok(each.map_err(|error| format!("no port of the host is free: {error}"))?.concat())
}

/// A port that nobody has. Somebody else may take it before it is bound again, and then it is said that it is taken.
fn free_port(address: Ipv4Addr, is_udp: bool) -> io::Result<u16> {
    let bound = match is_udp {
        true => UdpSocket::bind((address, 0))?.local_addr()?,
        false => TcpListener::bind((address, 0))?.local_addr()?,
    };
    Ok(bound.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(typed: &str) -> Result<Vec<String>, String> {
        let ports: Ports = typed.parse().map_err(str::to_owned)?;
        Ok(published(vec![ports])?.iter().map(Published::to_string).collect())
    }

    #[test]
    fn ports_are_published_one_by_one() {
        let check = |typed: &str, expected: &[&str]| {
            assert_eq!(texts(typed).unwrap(), expected, "{typed}");
        };
        check("8080:80", &["127.0.0.1:8080:80"]);
        check("0.0.0.0:53:5353/udp", &["0.0.0.0:53:5353/udp"]);
        check("1-1:2-2/tcp", &["127.0.0.1:1:2"]);
        check("65534-65535:1-2", &["127.0.0.1:65534:1", "127.0.0.1:65535:2"]);
        let ports: Ports = "1-65535:1-65535".parse().unwrap();
        assert_eq!(published(vec![ports]).unwrap().len(), 65535);
    }

    #[test]
    fn a_port_of_the_host_is_chosen_if_none_is_said() {
        for (typed, guests) in [("80", "80"), ("127.0.0.1::80", "80"), ("80-81/udp", "80 81")] {
            let ports: Ports = typed.parse().unwrap();
            let all = published(vec![ports]).unwrap();
            let found: Vec<_> = all.iter().map(|port| port.guest.to_string()).collect();
            assert_eq!(found.join(" "), guests);
            assert!(all.iter().all(|port| port.host != 0 && port.is_udp == typed.ends_with("udp")));
        }
    }

    #[test]
    fn what_names_no_ports_is_refused() {
        let wrong = [
            "", ":", "0", "0:80", "80:0", "65536:1", "a:1", "1:2:3", "::1:80", "1:2/sctp", "2-1",
            "1-2:1", "1-:1", "-1:1", "1:2:3:4",
        ];
        for typed in wrong {
            assert!(typed.parse::<Ports>().is_err(), "{typed:?}");
        }
    }
}

//! How `--net` and `--publish` are written.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// `--net`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Net {
    /// No card.
    None,
    /// What the user may reach, from a network of the guest's own.
    User(Option<Backend>),
    /// An interface of the host's.
    Tap(String),
}

/// Who makes a network of the user's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// passt(1).
    Passt,
    /// A process of ours.
    Builtin,
}

/// `--publish`: a port of the host's that leads to one of the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// The host's address; none for all of them.
    pub address: Option<Ipv4Addr>,
    /// The host's port.
    pub host: u16,
    /// The guest's.
    pub guest: u16,
    /// UDP and not TCP.
    pub is_udp: bool,
}

impl Published {
    /// Whether both want the same of the host's ports.
    #[must_use]
    pub fn collides_with(&self, other: &Published) -> bool {
        let is_one_everywhere = self.address.is_none() || other.address.is_none();
        let same_place = is_one_everywhere || self.address == other.address;
        (self.host, self.is_udp) == (other.host, other.is_udp) && same_place
    }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once([':', ',']) {
            None if text == "none" => Ok(Self::None),
            None if text == "user" => Ok(Self::User(None)),
            Some(("user", "backend=passt")) => Ok(Self::User(Some(Backend::Passt))),
            Some(("user", "backend=builtin")) => Ok(Self::User(Some(Backend::Builtin))),
            Some(("tap", name)) if text.starts_with("tap:") && !name.is_empty() => {
                Ok(Self::Tap(name.to_owned()))
            }
            _ => {
                Err("give none, user, user,backend=passt, user,backend=builtin or tap:NAME".into())
            }
        }
    }
}

impl FromStr for Published {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "give [IP:]HOSTPORT:GUESTPORT[/udp], such as 8080:80".to_owned();
        let (ports, is_udp) = match text.split_once('/') {
            Some((ports, "udp")) => (ports, true),
            Some((ports, "tcp")) => (ports, false),
            Some(_) => return Err(wrong()),
            None => (text, false),
        };
        let mut parts = ports.rsplit(':');
        let mut port = || {
            let part: u16 = parts.next()?.parse().ok()?;
            (part != 0).then_some(part)
        };
        let (guest, host) = (port().ok_or_else(wrong)?, port().ok_or_else(wrong)?);
        let address = parts.next().map(str::parse).transpose().map_err(|_| wrong())?;
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Self { address, host, guest, is_udp })
    }
}

impl fmt::Display for Published {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.address {
            write!(out, "{address}:")?;
        }
        write!(out, "{}:{}{}", self.host, self.guest, if self.is_udp { "/udp" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_published_once() {
        let check = |one: &str, other: &str, expected| {
            let (one, other): (Published, Published) =
                (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(one.collides_with(&other), expected, "{one} {other}");
            assert_eq!(other.collides_with(&one), expected, "{one} {other}");
        };
        check("80:80", "80:81", true);
        check("127.0.0.1:80:80", "80:80", true);
        check("127.0.0.1:80:80", "127.0.0.2:80:80", false);
        check("80:80", "80:80/udp", false);
        check("80:80", "81:80", false);
    }

    #[test]
    fn networks_have_names() {
        let check = |text: &str, expected| assert_eq!(text.parse().ok(), expected, "{text}");
        check("none", Some(Net::None));
        check("user", Some(Net::User(None)));
        check("user,backend=passt", Some(Net::User(Some(Backend::Passt))));
        check("user,backend=builtin", Some(Net::User(Some(Backend::Builtin))));
        check("tap:tap0", Some(Net::Tap("tap0".into())));
        for wrong in ["", "tap", "tap:", "tap,x", "user:", "user,backend=slirp", "none,x", "NONE"] {
            check(wrong, None);
        }
    }

    #[test]
    fn ports_are_published_as_they_are_written() {
        let check = |text: &str, expected: Option<(Option<[u8; 4]>, u16, u16, bool)>| {
            let expected = expected.map(|(address, host, guest, is_udp)| Published {
                address: address.map(Ipv4Addr::from),
                host,
                guest,
                is_udp,
            });
            let published: Option<Published> = text.parse().ok();
            assert_eq!(published, expected, "{text}");
            if let Some(published) = published {
                assert_eq!(published.to_string(), text.trim_end_matches("/tcp"));
            }
        };
        check("8080:80", Some((None, 8080, 80, false)));
        check("8080:80/tcp", Some((None, 8080, 80, false)));
        check("127.0.0.1:53:5353/udp", Some((Some([127, 0, 0, 1]), 53, 5353, true)));
        for wrong in [
            "",
            "80",
            "80:",
            ":80",
            "0:80",
            "80:0",
            "70000:80",
            "80:80/sctp",
            "x:80:80",
            "1.2.3.4:1:2:3",
            "::1:80:80",
        ] {
            check(wrong, None);
        }
    }
}

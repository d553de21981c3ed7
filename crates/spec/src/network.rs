//! The network of a machine.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Name, Other, Vif, is_default};

/// A network, to which the machine has a card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Network {
    /// A user-mode network: the guest reaches what the user may reach.
    User(UserNetwork),
    /// A TAP interface of the host.
    Tap(Tap),
    /// A network between domains, of a machine of Xen's interface.
    Vif(Vif),
}

/// A user-mode network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserNetwork {
    /// Its back-end, and how far it reaches.
    #[serde(flatten)]
    pub user: User,
    /// Ports of the host that are published.
    #[serde(default, skip_serializing_if = "is_default")]
    pub publish: Vec<Published>,
    /// The ports that the machine's image exposes are published besides, each at a port of 127.0.0.1 that is free.
    #[serde(default, skip_serializing_if = "is_default")]
    pub publish_exposed: bool,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// The properties of a user-mode network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct User {
    /// The guest reaches the host, too: servers on its loopback interface and its other addresses, and what
    /// is link-local to it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reaches_host: bool,
    /// Its back-end [default: a process of biv].
    #[serde(default, skip_serializing_if = "is_default")]
    pub backend: Option<Backend>,
    /// The network that the machine shares with others (`biv network create`), who find it there by its name
    /// [default: it is alone].
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub network: Option<Name>,
    /// Its address in that network [default: one that follows from its name].
    #[serde(default, skip_serializing_if = "is_default")]
    pub address: Option<Ipv4Addr>,
    /// The name by which others find it there [default: the machine's].
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub alias: Option<Name>,
}

/// The back-end of a user-mode network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// passt(1).
    Passt,
    /// A process of biv.
    Builtin,
}

/// An existing TAP interface of the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tap {
    /// Its name.
    pub name: String,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// A published port: a port of the host that leads to one of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The host's address, of IPv4 or IPv6; the unspecified one stands for all addresses of its kind
    /// [default: 127.0.0.1].
    #[serde(default = "localhost")]
    pub address: IpAddr,
    /// The host's port.
    pub host: u16,
    /// The guest's.
    pub guest: u16,
    /// UDP and not TCP.
    #[serde(default, rename = "udp", skip_serializing_if = "is_default")]
    pub is_udp: bool,
}

/// A connection as it is typed: one network, or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Net {
    /// No card.
    None,
    /// See [`UserNetwork`].
    User(User),
    /// See [`Tap`].
    Tap(String),
    /// See [`Vif`].
    Vif(Vif),
}

const fn localhost() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

impl Network {
    /// The ports that lead to it.
    #[must_use]
    pub fn published(&self) -> &[Published] {
        match self {
            Self::User(network) => &network.publish,
            Self::Tap(_) | Self::Vif(_) => &[],
        }
    }

    /// The network that it shares with others, by `biv network`.
    #[must_use]
    pub fn shared(&self) -> Option<&Name> {
        match self {
            Self::User(network) => network.user.network.as_ref(),
            Self::Tap(_) | Self::Vif(_) => None,
        }
    }

    /// As it is typed.
    #[must_use]
    pub fn net(&self) -> Net {
        match self {
            Self::User(network) => Net::User(network.user.clone()),
            Self::Tap(tap) => Net::Tap(tap.name.clone()),
            Self::Vif(vif) => Net::Vif(vif.clone()),
        }
    }

    pub(crate) fn other(&self) -> &Other {
        match self {
            Self::User(network) => &network.other,
            Self::Tap(tap) => &tap.other,
            Self::Vif(vif) => &vif.other,
        }
    }
}

impl Net {
    /// The list of networks that this stands for, with these ports.
    ///
    /// # Errors
    ///
    /// Ports that cannot be had.
    pub fn networks(self, publish: Vec<Published>) -> Result<Vec<Network>, String> {
        let networks = match self {
            Self::User(user) => {
                vec![Network::User(UserNetwork { user, publish, ..UserNetwork::default() })]
            }
            Self::None | Self::Tap(_) | Self::Vif(_) if !publish.is_empty() => {
                return Err("--publish requires --net user".into());
            }
            Self::None => Vec::new(),
            Self::Tap(name) => vec![Network::Tap(Tap { name, other: Other::default() })],
            Self::Vif(vif) => vec![Network::Vif(vif)],
        };
        check(Some(&networks)).map_err(|error| error.to_string())?;
        Ok(networks)
    }
}

/// Whether these networks can be had.
pub(crate) fn check(networks: Option<&[Network]>) -> Result<(), Error> {
    let contradiction = |reason: String| Err(Error::Contradiction(reason));
    let networks = networks.unwrap_or_default();
    if networks.len() > 1 {
        return contradiction("a machine is connected to one network at most (networks)".into());
    }
    for network in networks {
        match network {
            Network::Tap(tap) if tap.name.is_empty() => {
                return contradiction("an interface without a name (networks)".into());
            }
            Network::User(network) => {
                network.user.check().or_else(contradiction)?;
                let is_passt = network.user.backend == Some(Backend::Passt);
                if is_passt && network.publish.iter().any(|port| port.address.is_ipv6()) {
                    return contradiction(
                        "passt leads ports of IPv6 to a guest's address of IPv6, which it does not \
                         have; leave backend=passt out (publish)"
                            .into(),
                    );
                }
            }
            Network::Vif(vif) => vif.check().or_else(contradiction)?,
            Network::Tap(_) => {}
        }
        check_published(network.published()).or_else(contradiction)?;
    }
    Ok(())
}

/// Whether these ports can be had, each of the host's once.
///
/// # Errors
///
/// What is wrong with one, for people.
pub fn check_published(ports: &[Published]) -> Result<(), String> {
    for (number, port) in ports.iter().enumerate() {
        if port.host == 0 || port.guest == 0 {
            return Err("ports are numbers from 1 to 65535 (publish)".into());
        }
        if let Some(other) = ports[..number].iter().find(|other| other.collides_with(port)) {
            return Err(format!(
                "--publish {other} and --publish {port} want the same port of the host"
            ));
        }
    }
    Ok(())
}

impl Published {
    /// Whether both want the same of the host's ports.
    #[must_use]
    pub fn collides_with(&self, other: &Published) -> bool {
        let is_one_everywhere = self.address.is_unspecified() || other.address.is_unspecified();
        let is_everywhere = is_one_everywhere && self.address.is_ipv4() == other.address.is_ipv4();
        let same_place = is_everywhere || self.address == other.address;
        (self.host, self.is_udp) == (other.host, other.is_udp) && same_place
    }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        if let Some(name) = text.strip_prefix("tap:").filter(|name| !name.is_empty()) {
            return Ok(Self::Tap(name.to_owned()));
        }
        match text.split_once(',') {
            None if text == "user" => Ok(Self::User(User::default())),
            Some(("user", options)) => options.parse().map(Self::User),
            Some(("vif", options)) => options.parse().map(Self::Vif),
            _ => Err("expected none, user, user,host, tap:NAME or vif,ip=ADDRESS".into()),
        }
    }
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut user = Self::default();
        for option in text.split(',') {
            match option {
                "host" => user.reaches_host = true,
                "backend=passt" => user.backend = Some(Backend::Passt),
                "backend=builtin" => user.backend = Some(Backend::Builtin),
                _ => user.take_place(option)?,
            }
        }
        user.check()?;
        Ok(user)
    }
}

impl User {
    /// An option that says where it is among others.
    fn take_place(&mut self, option: &str) -> Result<(), String> {
        match option.split_once('=') {
            Some(("network", name)) => {
                self.network = Some(name.parse().map_err(|error| format!("network: {error}"))?);
            }
            Some(("ip", address)) => {
                let wrong = |_| format!("{address:?} is no address of IPv4 (ip)");
                self.address = Some(address.parse().map_err(wrong)?);
            }
            Some(("alias", name)) => {
                self.alias = Some(name.parse().map_err(|error| format!("alias: {error}"))?);
            }
            _ => {
                let known = "host, backend=passt, backend=builtin, network=NAME, ip=ADDRESS and \
                             alias=NAME";
                return Err(format!("unknown option {option:?}; user takes {known}"));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Self { network: None, address: Some(_), .. } => {
                Err("an address requires a network that is shared (--ip, --network)".to_owned())
            }
            Self { network: None, alias: Some(_), .. } => {
                Err("an alias requires a network that is shared (--network-alias, --network)"
                    .to_owned())
            }
            Self { backend: Some(Backend::Passt), network: Some(_), .. } => {
                Err("passt leads to no network that is shared; leave backend=passt out".to_owned())
            }
            Self { backend: Some(Backend::Passt), reaches_host: false, .. } => {
                Err("passt cannot keep a guest from the host's own addresses; give \
                 user,host,backend=passt if it may reach them, or leave backend=passt out"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl TryFrom<String> for Net {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Net> for String {
    fn from(net: Net) -> Self {
        net.to_string()
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::User(User { reaches_host, backend, network, address, alias }) => {
                f.write_str("user")?;
                f.write_str(if *reaches_host { ",host" } else { "" })?;
                f.write_str(match backend {
                    None => "",
                    Some(Backend::Passt) => ",backend=passt",
                    Some(Backend::Builtin) => ",backend=builtin",
                })?;
                network.iter().try_for_each(|network| write!(f, ",network={network}"))?;
                address.iter().try_for_each(|address| write!(f, ",ip={address}"))?;
                alias.iter().try_for_each(|alias| write!(f, ",alias={alias}"))
            }
            Self::Tap(name) => write!(f, "tap:{name}"),
            Self::Vif(vif) => write!(f, "vif,{vif}"),
        }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, host, guest, is_udp } = self;
        // An address of IPv6 is in brackets then.
        let place = SocketAddr::new(*address, *host);
        write!(out, "{place}:{guest}{}", if *is_udp { "/udp" } else { "" })
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
        let user = |reaches_host, backend| {
            Some(Net::User(User { reaches_host, backend, ..User::default() }))
        };
        check("user", user(false, None));
        check("user,host", user(true, None));
        check("user,backend=builtin", user(false, Some(Backend::Builtin)));
        check("user,host,backend=passt", user(true, Some(Backend::Passt)));
        check("user,backend=passt,host", user(true, Some(Backend::Passt)));
        let shared = User {
            network: Some("backend".parse().unwrap()),
            address: Some([10, 89, 1, 5].into()),
            alias: Some("db".parse().unwrap()),
            ..User::default()
        };
        check("user,network=backend,ip=10.89.1.5,alias=db", Some(Net::User(shared)));
        check("tap:tap0", Some(Net::Tap("tap0".into())));
        check("vif,ip=10.77.0.2", Some(Net::Vif(Vif::new([10, 77, 0, 2].into()))));
        for wrong in
            ["", "tap", "tap:", "tap,x", "user:", "user,", "user,backend=slirp", "none,x", "NONE"]
        {
            check(wrong, None);
        }
        for wrong in [
            "ip=10.89.1.5",
            "alias=db",
            "network=a,alias=a b",
            "network=",
            "network=../x",
            "network=a,ip=x",
        ] {
            check(&format!("user,{wrong}"), None);
        }
        check("user,host,backend=passt,network=a", None);
        // It could not be told to refuse what is not to be reached.
        let refused = "user,backend=passt".parse::<Net>().unwrap_err();
        assert!(refused.contains("user,host,backend=passt"), "{refused}");
    }

    #[test]
    fn ports_are_published_as_they_are_written() {
        let check = |text: &str, expected: Option<([u8; 4], u16, u16, bool)>| {
            let expected = expected.map(|(address, host, guest, is_udp)| Published {
                address: address.into(),
                host,
                guest,
                is_udp,
            });
            let published: Option<Published> = text.parse().ok();
            assert_eq!(published, expected, "{text}");
            if let Some(published) = published {
                assert_eq!(published.to_string().parse(), Ok(published));
            }
        };
        // Nobody but the host, unless an address is given.
        check("8080:80", Some(([127, 0, 0, 1], 8080, 80, false)));
        check("8080:80/tcp", Some(([127, 0, 0, 1], 8080, 80, false)));
        check("0.0.0.0:8080:80", Some(([0, 0, 0, 0], 8080, 80, false)));
        check("127.0.0.2:53:5353/udp", Some(([127, 0, 0, 2], 53, 5353, true)));
        let six: Published = "[fd00::1]:8080:80/udp".parse().unwrap();
        assert_eq!(six.address, "fd00::1".parse::<IpAddr>().unwrap());
        assert_eq!(six.to_string(), "[fd00::1]:8080:80/udp");
        for wrong in [
            "",
            "[::1]:80",
            "[::1]",
            "[::1:80:80",
            "[127.0.0.1]:80:80",
            "[x]:80:80",
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

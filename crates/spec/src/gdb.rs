//! A debugger outside of the machine.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Other, is_default};

/// gdb may connect to the machine, and debug its guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Gdb {
    /// Where it connects: `unix:PATH`, `tcp:PORT` of this host's own address, or `tcp:ADDRESS:PORT` [default: the Unix
    /// socket `gdb` in the domain's directory].
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub at: Option<GdbAddress>,
    /// The guest executes nothing before a debugger lets it go on. It boots.
    #[serde(skip_serializing_if = "is_default")]
    pub freeze: bool,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// Where gdb connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GdbAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl FromStr for GdbAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.is_empty() || path.contains('\0') {
                true => Err("the path of the Unix socket is missing".to_owned()),
                false => Ok(Self::Unix(path.into())),
            };
        }
        let Some(place) = text.strip_prefix("tcp:") else {
            return Err(format!(
                "{text:?} is neither unix:PATH nor tcp:PORT (a command stands behind --)"
            ));
        };
        let address = match place.parse() {
            Ok(port) => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
            Err(_) => place.parse(),
        };
        match address {
            Ok(address) if address.port() != 0 => Ok(Self::Tcp(address)),
            _ => Err(format!("{place:?} is neither a port nor ADDRESS:PORT")),
        }
    }
}

impl fmt::Display for GdbAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
            Self::Tcp(address) => write!(out, "tcp:{address}"),
        }
    }
}

impl TryFrom<String> for GdbAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<GdbAddress> for String {
    fn from(address: GdbAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let check = |text: &str, written: &str| {
            let address: GdbAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
            assert_eq!(written.parse(), Ok(address));
        };
        check("tcp:1234", "tcp:127.0.0.1:1234");
        check("tcp:0.0.0.0:1", "tcp:0.0.0.0:1");
        check("tcp:[::1]:99", "tcp:[::1]:99");
        check("unix:/a b", "unix:/a b");
        let wrong =
            ["", "1234", "unix:", "tcp:", "tcp:0", "tcp:70000", "tcp:a:1", "tcp:127.0.0.1", "ls"];
        for text in wrong {
            assert!(text.parse::<GdbAddress>().is_err(), "{text:?}");
        }
    }
}

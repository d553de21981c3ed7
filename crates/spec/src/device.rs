//! The devices of a machine besides those that every machine has.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Disk, Other, text};

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Device {
    /// A disk (virtio-blk): the guest's next one.
    Disk(Disk),
    /// An entropy device with the host's randomness (virtio-rng).
    Entropy(Plain),
    /// Sockets between guest and host (virtio-vsock).
    Sockets(Sockets),
    /// The debug-exit port 0xf4: writing VALUE ends the machine with status (VALUE << 1) | 1.
    DebugExit(Plain),
    /// The debug console, port 0xe9, whose output goes to a file.
    DebugConsole(DebugConsole),
}

/// A device without properties.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plain {
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// Sockets between the guest and Unix sockets of the host. A program that connects to the path and sends "CONNECT N"
/// is connected to the guest's port N; a guest that connects to port N of address 2 is connected to `PATH_N`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sockets {
    /// The Unix socket at which programs connect.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// The guest's address (cid), 3 or higher [default: 3].
    #[serde(default = "first_address")]
    pub address: u32,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// A debug console.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DebugConsole {
    /// The file for its output.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub file: PathBuf,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// The guest's address, unless another is asked for (virtio 1.2, 5.10.4: 0 to 2 are others').
const fn first_address() -> u32 {
    3
}

impl Device {
    /// An entropy device.
    #[must_use]
    pub fn entropy() -> Self {
        Self::Entropy(Plain::default())
    }

    /// A port by which the machine ends.
    #[must_use]
    pub fn debug_exit() -> Self {
        Self::DebugExit(Plain::default())
    }

    /// A debug console whose output is written to that file.
    #[must_use]
    pub fn debug_console(file: PathBuf) -> Self {
        Self::DebugConsole(DebugConsole { file, other: Other::default() })
    }

    pub(crate) fn other(&self) -> &Other {
        match self {
            Self::Disk(disk) => &disk.other,
            Self::Entropy(plain) | Self::DebugExit(plain) => &plain.other,
            Self::Sockets(sockets) => &sockets.other,
            Self::DebugConsole(console) => &console.other,
        }
    }
}

impl Sockets {
    /// Reads `PATH[,cid=N]`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (path, address) = match text.rsplit_once(",cid=") {
            Some((path, number)) => {
                let number = number.parse::<u32>().ok();
                let number = number.filter(|&number| is_guests(number));
                (path, number.ok_or(WRONG_ADDRESS)?)
            }
            None => (text, first_address()),
        };
        if path.is_empty() {
            return Err("no path".to_owned());
        }
        Ok(Self { path: path.into(), address, other: Other::default() })
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn complaint(&self) -> Option<&'static str> {
        (!is_guests(self.address)).then_some(WRONG_ADDRESS)
    }
}

const WRONG_ADDRESS: &str = "a guest's cid is a number from 3 to 4294967294";

fn is_guests(address: u32) -> bool {
    (first_address()..u32::MAX).contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_be_followed_by_an_address() {
        let check = |text, expected: Option<(&str, u32)>| {
            let found = Sockets::parse(text).ok();
            let expected = expected.map(|(path, address)| Sockets {
                path: path.into(),
                address,
                other: Other::default(),
            });
            assert_eq!(found, expected, "{text}");
        };
        check("/run/x", Some(("/run/x", 3)));
        check("x,cid=42", Some(("x", 42)));
        check("x,y", Some(("x,y", 3)));
        check("x,cid=2", None);
        check("x,cid=4294967295", None);
        check("x,cid=", None);
        check(",cid=3", None);
        check("", None);
    }
}

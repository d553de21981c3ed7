//! Networks of pods and machines: a directory for each, with what it is, a lock, and the control socket and the
//! messages of its switch. A network is there from `create` to `rm`, or until the host starts again.
//!
//! 1. *A network's lock is held for a moment*: by whoever takes a place in it, starts the switch, or removes the
//!    network. Nothing else relies on it.
//! 2. *Which addresses are taken is said by those that live*, and nowhere else ([`super::places`]): so no address is
//!    lost with a pod, and none is given twice.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, flock, mkdirat, openat, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use spec::Name;

use super::files;

/// The version of the description that this code writes; it reads no other.
const VERSION: u32 = 1;

/// What a network is, and those of its files that are only there when pods were.
const DESCRIPTION: &str = "network.json";
const CONTROL: &str = "control";

/// The longest description that is read.
const DESCRIPTION_MAX_BYTES: u64 = 4 << 10;

/// How long to wait for others who have a network's lock, and between two tries.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// Bits of a subnet's prefix, the fewest and the most.
const BITS: std::ops::RangeInclusive<u8> = 16..=29;

/// Names that `--network` has another meaning for, as podman's has.
const RESERVED: [&str; 2] = ["none", "host"];

/// The subnets that networks get who are not given one: the third number of their addresses.
const CHOICE: std::ops::RangeInclusive<u8> = 1..=254;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why a network cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("no network {0}; make it with `biv network create {0}`")]
    Unknown(String),
    /// There is one already.
    #[error("network {0} already exists")]
    Exists(Name),
    /// Its name has another meaning.
    #[error("no network is called {0}: `biv run --network {0}` is no network of machines")]
    Reserved(Name),
    /// Somebody lives in it.
    #[error("network {0} is used by {1}; stop them first")]
    Used(Name, String),
    /// All subnets of the choice are taken.
    #[error("there is no free subnet; give one with --subnet")]
    NoSubnet,
    /// Somebody else's lock.
    #[error("network {0} is being changed by another process")]
    Locked(Name),
    /// The host.
    #[error("cannot use the networks: {0}")]
    Host(#[from] io::Error),
}

impl From<Errno> for Error {
    fn from(error: Errno) -> Self {
        Error::Host(error.into())
    }
}

/// The addresses of a network: all that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    first: Ipv4Addr,
    bits: u8,
}

impl Subnet {
    /// Bits of its prefix.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Through whom pods reach others, and whom they ask for names: the first that can be anybody's.
    #[must_use]
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits() | 1)
    }

    /// How many addresses pods can have.
    #[must_use]
    pub fn pods(self) -> u32 {
        // All but the first, the last, and the gateway.
        (1 << (32 - u32::from(self.bits))) - 3
    }

    /// One of them, from 0 on; beyond the last comes the first.
    #[must_use]
    pub fn pod(self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits() + 2 + number % self.pods())
    }

    /// Whether a pod can have an address.
    #[must_use]
    pub fn has_pod(self, address: Ipv4Addr) -> bool {
        let number = address.to_bits().wrapping_sub(self.first.to_bits());
        (2..self.pods() + 2).contains(&number)
    }

    /// Whether both have an address.
    #[must_use]
    pub fn overlaps(self, other: Subnet) -> bool {
        let bits = u32::from(self.bits.min(other.bits));
        (self.first.to_bits() ^ other.first.to_bits()) >> (32 - bits) == 0
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Subnet, String> {
        let wrong = || format!("{text:?} is no subnet such as 10.89.1.0/24");
        let (first, bits) = text.split_once('/').ok_or_else(wrong)?;
        let first: Ipv4Addr = first.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        if !BITS.contains(&bits) {
            return Err(format!(
                "the prefix of a subnet has {} to {} bits",
                BITS.start(),
                BITS.end()
            ));
        }
        if first.to_bits().trailing_zeros() < 32 - u32::from(bits) {
            return Err(format!("{text:?} is an address in a subnet: give the subnet's first"));
        }
        let is_of_hosts = !(first.is_loopback()
            || first.is_multicast()
            || first.is_link_local()
            || matches!(first.octets()[0], 0 | 240..));
        if is_of_hosts { Ok(Subnet { first, bits }) } else { Err(format!("{text} is nobody's")) }
    }
}

impl TryFrom<String> for Subnet {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Subnet> for String {
    fn from(subnet: Subnet) -> String {
        subnet.to_string()
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.first, self.bits)
    }
}

/// What a network is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The version of this description.
    pub version: u32,
    /// Its name.
    pub name: Name,
    /// Its addresses.
    pub subnet: Subnet,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
}

/// The networks of one user's pods.
#[derive(Debug)]
pub struct Networks {
    directory: OwnedFd,
}

/// One of them.
#[derive(Debug)]
pub struct Network {
    /// What it is.
    pub description: Description,
    directory: OwnedFd,
}

impl Networks {
    /// Those in this directory, which is made if it is not there. It is in one that only this user may write.
    pub(crate) fn at(path: &Path) -> Result<Networks, Error> {
        match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let directory = openat(CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Networks { directory })
    }

    /// Makes one, with a subnet that no other has if none is given.
    ///
    /// # Errors
    ///
    /// There is one, or there is no subnet, or the host's.
    pub fn create(&self, name: &Name, subnet: Option<Subnet>) -> Result<Network, Error> {
        if RESERVED.contains(&name.as_str()) {
            return Err(Error::Reserved(name.clone()));
        }
        let _changes = self.lock()?;
        if self.find(name.as_str()).is_ok() {
            return Err(Error::Exists(name.clone()));
        }
        let taken: Vec<Subnet> = self.list()?.iter().map(|it| it.description.subnet).collect();
        let is_free = |subnet: &Subnet| !taken.iter().any(|other| other.overlaps(*subnet));
        let mut choice =
            CHOICE.map(|third| Subnet { first: Ipv4Addr::new(10, 89, third, 0), bits: 24 });
        let subnet = subnet.or_else(|| choice.find(is_free)).ok_or(Error::NoSubnet)?;
        match mkdirat(&self.directory, name.as_str(), Mode::RWXU) {
            // One whose maker was killed.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let created = super::record::now();
        let description = Description { version: VERSION, name: name.clone(), subnet, created };
        let directory = openat(&self.directory, name.as_str(), DIRECTORY, Mode::empty())?;
        let text = serde_json::to_vec(&description).map_err(io::Error::from)?;
        files::replace(&directory, DESCRIPTION, &text)?;
        self.find(name.as_str())
    }

    /// The network of that name.
    ///
    /// # Errors
    ///
    /// There is none, or the host's.
    pub fn find(&self, name: &str) -> Result<Network, Error> {
        let unknown = || Error::Unknown(name.to_owned());
        let name: Name = name.parse().map_err(|_| unknown())?;
        let directory = match openat(&self.directory, name.as_str(), DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Err(unknown()),
            other => other?,
        };
        let description = describe(&directory)?.ok_or_else(unknown)?;
        Ok(Network { description, directory })
    }

    /// All of them, in the order of their names.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn list(&self) -> Result<Vec<Network>, Error> {
        let entries = Dir::read_from(&self.directory)?.filter_map(Result::ok);
        let mut names: Vec<Name> =
            entries.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect();
        names.sort();
        // One that is being removed, or made, is not there.
        Ok(names.iter().filter_map(|name| self.find(name.as_str()).ok()).collect())
    }

    /// Removes one, unless `pods` names some who live in it. None comes to be meanwhile.
    ///
    /// # Errors
    ///
    /// It is used, or the host's.
    pub fn remove(&self, network: &Network, pods: impl Fn() -> Vec<Name>) -> Result<(), Error> {
        let _changes = self.lock()?;
        let _alone = network.lock()?;
        let name = &network.description.name;
        let pods = pods();
        if !pods.is_empty() {
            let pods: Vec<&str> = pods.iter().map(Name::as_str).collect();
            return Err(Error::Used(name.clone(), pods.join(", ")));
        }
        for file in Dir::read_from(&network.directory)?.filter_map(Result::ok) {
            let file = file.file_name();
            if file != c"." && file != c".." {
                unlinkat(&network.directory, file, AtFlags::empty())?;
            }
        }
        Ok(unlinkat(&self.directory, name.as_str(), AtFlags::REMOVEDIR)?)
    }

    /// The lock of whoever makes or removes networks.
    fn lock(&self) -> Result<OwnedFd, Error> {
        let lock = files::create(&self.directory, ".lock")?;
        files::until_locked(&lock)?;
        Ok(lock)
    }
}

impl Network {
    /// Its lock, as long as the descriptor lives. It is still there then.
    ///
    /// # Errors
    ///
    /// Another process has it for too long, or the network has been removed.
    pub fn lock(&self) -> Result<OwnedFd, Error> {
        let name = &self.description.name;
        let lock = match files::create(&self.directory, files::LOCK) {
            Err(Errno::NOENT) => return Err(Error::Unknown(name.to_string())),
            other => other?,
        };
        let start = Instant::now();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < PATIENCE => {
                    std::thread::sleep(PAUSE);
                }
                Err(Errno::WOULDBLOCK) => return Err(Error::Locked(name.clone())),
                Err(error) => return Err(error.into()),
                Ok(()) => break,
            }
        }
        match describe(&self.directory)? {
            Some(_) => Ok(lock),
            None => Err(Error::Unknown(name.to_string())),
        }
    }

    /// Where its switch listens: a path that is short enough for a socket, as long as this lives.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        files::path(&self.directory, CONTROL).into()
    }

    /// Removes the socket of a switch that has ended. To be called with the lock.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn remove_control(&self) -> io::Result<()> {
        match unlinkat(&self.directory, CONTROL, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A new file for what its switch says.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn messages(&self) -> io::Result<File> {
        let file = File::from(files::create(&self.directory, files::MESSAGES)?);
        file.set_len(0)?;
        Ok(file)
    }
}

/// What the network is that has this directory; none if it is being made or removed.
fn describe(directory: impl AsFd) -> Result<Option<Description>, Error> {
    match files::read(directory, DESCRIPTION, DESCRIPTION_MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
        Ok(text) => {
            let description: Description =
                serde_json::from_slice(&text).map_err(io::Error::from)?;
            Ok(Some(description).filter(|it| it.version == VERSION))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_have_addresses_for_pods() {
        let subnet: Subnet = "10.89.1.0/29".parse().unwrap();
        assert_eq!((subnet.gateway(), subnet.pods()), (Ipv4Addr::new(10, 89, 1, 1), 5));
        let all: Vec<u8> = (0..6).map(|number| subnet.pod(number).octets()[3]).collect();
        assert_eq!(all, [2, 3, 4, 5, 6, 2]);
        let has = |last| subnet.has_pod(Ipv4Addr::new(10, 89, 1, last));
        assert_eq!((0..9).filter(|last| has(*last)).collect::<Vec<u8>>(), [2, 3, 4, 5, 6]);
        assert!(!subnet.has_pod(Ipv4Addr::new(10, 89, 0, 255)));
        assert_eq!(subnet.to_string(), "10.89.1.0/29");
        let wide: Subnet = "10.89.0.0/16".parse().unwrap();
        assert!(wide.overlaps(subnet) && subnet.overlaps(wide));
        assert!(!subnet.overlaps("10.89.1.8/29".parse().unwrap()));
    }

    #[test]
    fn what_is_no_subnet_is_refused() {
        for (text, why) in [
            ("10.89.1.0", "no subnet"),
            ("10.89.1.0/x", "no subnet"),
            ("10.89/16", "no subnet"),
            ("10.89.1.0/30", "16 to 29"),
            ("10.0.0.0/8", "16 to 29"),
            ("10.89.1.1/24", "the subnet's first"),
            ("127.0.0.0/24", "nobody's"),
            ("224.0.1.0/24", "nobody's"),
            ("169.254.0.0/16", "nobody's"),
            ("0.0.0.0/16", "nobody's"),
        ] {
            let refused = text.parse::<Subnet>().unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn networks_are_made_and_removed() {
        let path = std::env::temp_dir().join(format!("biv-networks-{}", std::process::id()));
        let networks = Networks::at(&path).unwrap();
        let name = |text: &str| text.parse::<Name>().unwrap();
        assert!(matches!(networks.find("a"), Err(Error::Unknown(_))));
        let one = networks.create(&name("a"), None).unwrap();
        let two = networks.create(&name("b"), None).unwrap();
        assert_eq!(one.description.subnet.to_string(), "10.89.1.0/24");
        assert_eq!(two.description.subnet.to_string(), "10.89.2.0/24");
        assert!(matches!(networks.create(&name("a"), None), Err(Error::Exists(_))));
        assert_eq!(networks.list().unwrap().len(), 2);
        let used = networks.remove(&one, || vec![name("web")]).unwrap_err().to_string();
        assert!(used.contains("is used by web"), "{used}");
        let lock = two.lock().unwrap();
        drop(lock);
        networks.remove(&one, Vec::new).unwrap();
        networks.remove(&two, Vec::new).unwrap();
        // Whoever has opened it before hears that it is gone.
        assert!(matches!(two.lock(), Err(Error::Unknown(_))));
        std::fs::remove_file(path.join(".lock")).unwrap();
        std::fs::remove_dir(&path).unwrap();
    }
}

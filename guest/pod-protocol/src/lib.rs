//! What a pod's keeper tells the pod's first process, init, before that serves it: the names of the pod.
//!
//! Init is started with three descriptors: a socket to the keeper on standard input, a file with the encoded [`Setup`]
//! on standard output, and a pipe for its complaints on standard error. What follows over the socket:
//!
//! 1. Init has left the host's namespaces, and sends [`UNSHARED`].
//! 2. The keeper has mapped users and groups of the pod to those of the host, and sends [`MAPPED`]; with a descriptor,
//!    a tree of mounts, if it gives the pod's root because the pod's users could not get to it by its path.
//! 3. If the pod is to have a network, init has made its interface, and sends [`UPLINK`] with two descriptors: a packet
//!    socket at the other end, and a socket for requests about that end ([`PEER_INDEX`]); if there are neighbours, with
//!    a third, a packet socket for what is not the gateway's.
//! 4. Init has made the pod's root, and sends [`LAYERS`] with a descriptor: the directory with the layers' upper parts,
//!    which nobody in the pod can reach.
//! 5. Init gives the pod its other names, becomes its process 1, and greets: from here on both speak the protocol of a
//!    guest's init (`guest/protocol`), which allows for such bytes before its greeting.
//!
//! Both ends come from one build, so nothing has a version.

#![forbid(unsafe_code)]

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Init says: I am in namespaces of my own, and nobody in them.
pub const UNSHARED: u8 = b'U';

/// The keeper says: you are somebody now.
pub const MAPPED: u8 = b'M';

/// Init says: here is the other end of the pod's interface.
pub const UPLINK: u8 = b'N';

/// The number of that other end, in a network namespace that has nothing else.
pub const PEER_INDEX: u32 = 101;

/// Init says: here are the layers.
pub const LAYERS: u8 = b'L';

/// The name under which the program packs and unpacks the pod's files. Its argument is [`PACK`] or [`UNPACK`]; over the
/// socket on its standard input come one byte and three descriptors: a pidfd of the pod's init, the layers, and where
/// the archive goes or comes from.
pub const FILES_NAME: &str = "biv-pod-files";

/// Pack the pod's files.
pub const PACK: &str = "pack";

/// Unpack them.
pub const UNPACK: &str = "unpack";

/// The longest encoded [`Setup`], in bytes.
pub const SETUP_MAX_BYTES: usize = 1 << 20;

/// The status of an init that could not make the pod, which it has said why.
pub const STATUS_FAILED: u8 = 125;

/// Where the pod's root file system comes from. Paths are bytes, absolute, and the host's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The directory.
    pub path: Vec<u8>,
    /// The pod writes to the directory itself, not to a layer of its own above it.
    pub is_writable: bool,
    /// It is the host's own root, of which a pod does not see everything.
    pub is_host: bool,
}

/// A pod's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The Ethernet address of the pod's interface.
    pub card: [u8; 6],
    /// Its address.
    pub address: Ipv4Addr,
    /// Bits of the network's prefix.
    pub prefix_bits: u8,
    /// Through whom others are reached.
    pub gateway: Ipv4Addr,
    /// Who knows names.
    pub nameserver: Ipv4Addr,
    /// The greatest packet, in bytes.
    pub mtu: u16,
    /// The gateway's Ethernet address, if there are others than the gateway in the network.
    pub gateway_card: Option<[u8; 6]>,
}

/// What a pod is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The process of the keeper, in its own process namespace.
    pub keeper: u32,
    /// The host name.
    pub hostname: Vec<u8>,
    /// The root file system.
    pub root: Root,
    /// Directories of the host that the pod writes to, each at its own place.
    pub shared: Vec<Vec<u8>>,
    /// Files and directories of the host that the pod does not see.
    pub hidden: Vec<Vec<u8>>,
    /// More than one group is mapped, so that terminals can belong to one of their own.
    pub has_groups: bool,
    /// Its network; none: a loopback interface only.
    pub network: Option<Network>,
}

/// Why bytes are no [`Setup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They are more than [`SETUP_MAX_BYTES`].
    #[error("the description of the pod is longer than {SETUP_MAX_BYTES} bytes")]
    TooLong,
    /// They make no sense.
    #[error("the description of the pod makes no sense")]
    Nonsense,
}

impl Setup {
    /// It as bytes.
    ///
    /// # Errors
    ///
    /// They would be too many.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let bytes = postcard::to_stdvec(self).map_err(|_| Error::TooLong)?;
        if bytes.len() > SETUP_MAX_BYTES { Err(Error::TooLong) } else { Ok(bytes) }
    }

    /// The inverse.
    ///
    /// # Errors
    ///
    /// They are none.
    pub fn decode(bytes: &[u8]) -> Result<Setup, Error> {
        if bytes.len() > SETUP_MAX_BYTES {
            return Err(Error::TooLong);
        }
        match postcard::take_from_bytes(bytes) {
            Ok((setup, [])) => Ok(setup),
            _ => Err(Error::Nonsense),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        Setup {
            keeper: 4711,
            hostname: b"web".to_vec(),
            root: Root { path: b"/srv/\xff".to_vec(), is_writable: false, is_host: false },
            shared: vec![b"/home/u/project".to_vec()],
            hidden: vec![b"/home/u/.ssh".to_vec(), b"/root/.netrc".to_vec()],
            has_groups: true,
            network: Some(Network {
                card: [0x52, 0x54, 0, 1, 2, 3],
                address: [10, 0, 2, 15].into(),
                prefix_bits: 24,
                gateway: [10, 0, 2, 2].into(),
                nameserver: [10, 0, 2, 3].into(),
                mtu: 65520,
                gateway_card: Some([0x52, 0x55, 10, 0, 2, 2]),
            }),
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let bytes = setup().encode().unwrap();
        assert_eq!(Setup::decode(&bytes), Ok(setup()));
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_refused() {
        let bytes = setup().encode().unwrap();
        for length in 0..bytes.len() {
            assert_eq!(Setup::decode(&bytes[..length]), Err(Error::Nonsense), "{length}");
        }
        assert_eq!(Setup::decode(&[&bytes[..], b"x"].concat()), Err(Error::Nonsense));
        assert_eq!(Setup::decode(&vec![0; SETUP_MAX_BYTES + 1]), Err(Error::TooLong));
        let long = Setup { hostname: vec![b'x'; SETUP_MAX_BYTES], ..setup() };
        assert_eq!(long.encode(), Err(Error::TooLong));
    }
}

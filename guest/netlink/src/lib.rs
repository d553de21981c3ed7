//! rtnetlink(7): requests to the kernel about interfaces, addresses and routes, one at a time, each with an answer.
//!
//! What it is not: a way to ask what there is. Whoever uses it has made what it speaks of.

#![forbid(unsafe_code)]

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// The interface `lo`, in every network namespace.
pub const LOOPBACK_INDEX: u32 = 1;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLMSG_ERROR: u16 = 2;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;

const AF_INET: u8 = 2;
const AF_INET6: u16 = 10;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;

/// One end of a pair of interfaces (veth(4)).
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name there, of at most 15 bytes.
    pub name: &'a str,
    /// Its Ethernet address; none: one by chance.
    pub address: Option<[u8; 6]>,
}

/// A conversation with the kernel about one network namespace.
#[derive(Debug)]
pub struct Conversation {
    socket: OwnedFd,
}

impl From<OwnedFd> for Conversation {
    /// Goes on with one that another process has started.
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl AsFd for Conversation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Conversation {
    /// Starts one about the namespace of this process.
    ///
    /// # Errors
    ///
    /// As socket(2).
    pub fn start() -> io::Result<Self> {
        // No protocol is protocol 0, NETLINK_ROUTE.
        let kind = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket })
    }

    /// Makes a pair of interfaces: `here`, and `there` in another namespace, for packets of up to `mtu` bytes. What is
    /// larger when it is sent `here`, the kernel takes to pieces before.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn add_pair(
        &mut self,
        here: End<'_>,
        there: End<'_>,
        namespace: BorrowedFd<'_>,
        mtu: u16,
    ) -> io::Result<()> {
        let of_peer = attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        let peer = [link(there.index, 0), of_end(there, mtu), of_peer].concat();
        let data = attribute(IFLA_INFO_DATA, &attribute(VETH_INFO_PEER, &peer));
        let kind = attribute(IFLA_INFO_KIND, b"veth");
        let pieces = attribute(IFLA_GSO_MAX_SEGS, &1u32.to_ne_bytes());
        let info = attribute(IFLA_LINKINFO, &[kind, data].concat());
        let attributes = [of_end(here, mtu), pieces, info].concat();
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.say(RTM_NEWLINK, flags, &link(here.index, 0), &attributes)
    }

    /// Set an interface up.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn raise(&mut self, index: u32) -> io::Result<()> {
        self.say(RTM_NEWLINK, 0, &link_with(index, IFF_UP, IFF_UP), &[])
    }

    /// Set an interface down.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn lower(&mut self, index: u32) -> io::Result<()> {
        self.say(RTM_NEWLINK, 0, &link_with(index, 0, IFF_UP), &[])
    }

    /// Have an interface that is down get no address of IPv6 by itself.
    ///
    /// # Errors
    ///
    /// The kernel's, if it has no IPv6, for one.
    pub fn keep_from_ipv6(&mut self, index: u32) -> io::Result<()> {
        let mode = attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
        let family = attribute(IFLA_AF_SPEC, &attribute(AF_INET6, &mode));
        self.say(RTM_NEWLINK, 0, &link(index, 0), &family)
    }

    /// Set the greatest size of packets.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_mtu(&mut self, index: u32, mtu: u16) -> io::Result<()> {
        let mtu = attribute(IFLA_MTU, &u32::from(mtu).to_ne_bytes());
        self.say(RTM_NEWLINK, 0, &link(index, 0), &mtu)
    }

    /// Give an interface an address, or again.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn add_address(&mut self, index: u32, address: Ipv4Addr, bits: u8) -> io::Result<()> {
        let mut body = vec![AF_INET, bits, 0, RT_SCOPE_UNIVERSE];
        body.extend(index.to_ne_bytes());
        let octets = address.octets();
        let attributes = [attribute(IFA_LOCAL, &octets), attribute(IFA_ADDRESS, &octets)].concat();
        self.say(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body, &attributes)
    }

    /// Reach everybody through `gateway`.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn add_route(&mut self, index: u32, gateway: Ipv4Addr) -> io::Result<()> {
        let through = attribute(RTA_GATEWAY, &gateway.octets());
        let attributes = [through, attribute(RTA_OIF, &index.to_ne_bytes())].concat();
        let body = route(0, RT_SCOPE_UNIVERSE);
        self.say(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body, &attributes)
    }

    /// Reach `address` through the interface itself.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn add_direct_route(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        let to = attribute(RTA_DST, &address.octets());
        let attributes = [to, attribute(RTA_OIF, &index.to_ne_bytes())].concat();
        let body = route(32, RT_SCOPE_LINK);
        self.say(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body, &attributes)
    }

    fn say(&mut self, kind: u16, flags: u16, body: &[u8], attributes: &[u8]) -> io::Result<()> {
        let length = 16 + body.len() + attributes.len();
        let mut message = (length as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        message.extend([0; 8]); // sequence number, port
        message.extend(body);
        message.extend(attributes);
        send(&self.socket, &message, SendFlags::empty())?;
        let mut answer = [0; 1024];
        let (length, _) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
        check(&answer[..length])
    }
}

/// An attribute: its length, its kind and its value, padded to whole words.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut bytes = (length as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

/// What is said of an end of a pair.
fn of_end(end: End<'_>, mtu: u16) -> Vec<u8> {
    // A name ends with a zero.
    let mut all = attribute(IFLA_IFNAME, &[end.name.as_bytes(), &[0]].concat());
    all.extend(attribute(IFLA_MTU, &u32::from(mtu).to_ne_bytes()));
    all.extend(end.address.map(|address| attribute(IFLA_ADDRESS, &address)).unwrap_or_default());
    all
}

/// What the kernel answers: an error number, which is 0 for none.
fn check(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
        _ => Err(io::Error::other("the kernel's answer makes no sense")),
    }
}

/// A `struct ifinfomsg` that sets these flags.
fn link(index: u32, flags: u32) -> Vec<u8> {
    link_with(index, flags, flags)
}

/// The same, where `change` are the flags that are meant.
fn link_with(index: u32, flags: u32, change: u32) -> Vec<u8> {
    let mut body = vec![0; 4]; // family, padding, device type
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(change.to_ne_bytes());
    body
}

/// A `struct rtmsg`.
fn route(bits: u8, scope: u8) -> Vec<u8> {
    let mut body = vec![AF_INET, bits, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, scope, RTN_UNICAST];
    body.extend([0; 4]); // flags
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_whole_words() {
        let bytes = attribute(IFLA_INFO_KIND, b"veth0");
        assert_eq!(bytes.len(), 12);
        assert_eq!(bytes[..4], [[9u16.to_ne_bytes()], [1u16.to_ne_bytes()]].concat().concat()[..]);
        assert_eq!(&bytes[4..], b"veth0\0\0\0");
        assert_eq!(attribute(1, &[]).len(), 4);
    }

    #[test]
    fn what_the_kernel_says_is_an_error_or_none() {
        let answer = |kind: u16, error: i32| {
            let mut bytes = vec![0; 16];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes.extend(error.to_ne_bytes());
            bytes
        };
        assert!(check(&answer(NLMSG_ERROR, 0)).is_ok());
        assert_eq!(check(&answer(NLMSG_ERROR, -1)).unwrap_err().raw_os_error(), Some(1));
        assert!(check(&answer(3, 0)).is_err());
        assert!(check(&answer(NLMSG_ERROR, i32::MIN)).is_err());
        for length in 0..20 {
            assert!(check(&answer(NLMSG_ERROR, 0)[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn who_has_no_right_is_told_so() {
        // There is no such interface, and who may not change any hears that first.
        assert!(Conversation::start().unwrap().lower(u32::MAX >> 1).is_err());
    }
}

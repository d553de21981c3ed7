//! rtnetlink(7): requests to the kernel about interfaces, addresses and routes, one at a time, each
//! with an answer.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLMSG_ERROR: u16 = 2;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;

const IFF_UP: u32 = 1;
const IFLA_MTU: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;

const AF_INET: u8 = 2;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;

/// See above.
pub struct Conversation {
    socket: OwnedFd,
}

impl Conversation {
    pub fn start() -> io::Result<Self> {
        // No protocol is protocol 0, NETLINK_ROUTE.
        let kind = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket })
    }

    /// Set an interface up.
    pub fn raise(&mut self, index: u32) -> io::Result<()> {
        self.say(RTM_NEWLINK, 0, &link(index, IFF_UP), &[])
    }

    /// Set the greatest size of packets.
    pub fn set_mtu(&mut self, index: u32, mtu: u16) -> io::Result<()> {
        let mtu = u32::from(mtu).to_ne_bytes();
        self.say(RTM_NEWLINK, 0, &link(index, 0), &[(IFLA_MTU, mtu)])
    }

    /// Give an interface an address, or again.
    pub fn add_address(&mut self, index: u32, address: Ipv4Addr, bits: u8) -> io::Result<()> {
        let mut body = vec![AF_INET, bits, 0, RT_SCOPE_UNIVERSE];
        body.extend(index.to_ne_bytes());
        let octets = address.octets();
        let attributes = [(IFA_LOCAL, octets), (IFA_ADDRESS, octets)];
        self.say(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body, &attributes)
    }

    /// Reach everybody through `gateway`.
    pub fn add_route(&mut self, index: u32, gateway: Ipv4Addr) -> io::Result<()> {
        let attributes = [(RTA_GATEWAY, gateway.octets()), (RTA_OIF, index.to_ne_bytes())];
        let body = route(0, RT_SCOPE_UNIVERSE);
        self.say(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body, &attributes)
    }

    /// Reach `address` through the interface itself.
    pub fn add_direct_route(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        let attributes = [(RTA_DST, address.octets()), (RTA_OIF, index.to_ne_bytes())];
        let body = route(32, RT_SCOPE_LINK);
        self.say(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body, &attributes)
    }

    fn say(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        attributes: &[(u16, [u8; 4])],
    ) -> io::Result<()> {
        let length = 16 + body.len() + 8 * attributes.len();
        let mut message = (length as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        message.extend([0; 8]); // sequence number, port
        message.extend(body);
        for (kind, value) in attributes {
            message.extend(8u16.to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(value);
        }
        send(&self.socket, &message, SendFlags::empty())?;
        let mut answer = [0; 512];
        let (length, _) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
        check(&answer[..length])
    }
}

/// What the kernel answers: an error number, which is 0 for none.
fn check(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::Error::other("the kernel's answer makes no sense")),
    }
}

/// A `struct ifinfomsg` that sets these flags.
fn link(index: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 4]; // family, padding, device type
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(flags.to_ne_bytes()); // which of them are meant
    body
}

/// A `struct rtmsg`.
fn route(bits: u8, scope: u8) -> Vec<u8> {
    let mut body = vec![AF_INET, bits, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, scope, RTN_UNICAST];
    body.extend([0; 4]); // flags
    body
}

//! The pod's way to the world: a pair of interfaces (veth(4)). One is the pod's; the other is in a network namespace of
//! its own, which has nothing else and belongs to the pod's user namespace as well. The outer process makes the pair,
//! and gives the keeper a packet socket at that other end, and a socket for requests about it. Nothing else keeps that
//! namespace: when both sockets are closed, or the pod ends, the pair is gone.
//!
//! It takes no file of the host's (`/dev/net/tun` may be nobody's), and no privilege but over the pod's namespaces.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use netlink::{Conversation, End};
use pod_protocol::{Network, PEER_INDEX, UPLINK};
use rustix::thread::UnshareFlags;

use crate::division;
use crate::error::{Doing, Error};
use crate::keeper::tell;
use crate::unshare::unshare;

/// The pod's interface, and its number. Small numbers may be those of interfaces that the kernel makes in every
/// namespace (tunnels). Those of a pair differ: if they are the same, the kernel takes a second until it has noticed
/// that there is somebody at the other end (`linkwatch_urgent_event` in net/core/link_watch.c).
const NAME: &str = "eth0";
const INDEX: u32 = 100;

/// The other end.
const PEER: &str = "pod";

/// `ETH_P_ALL` (linux/if_ether.h), as it is on the wire.
const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();

/// `PACKET_VNET_HDR` and `PACKET_IGNORE_OUTGOING` (linux/if_packet.h).
const WITH_HEADERS: libc::c_int = 15;
const WITHOUT_OUTGOING: libc::c_int = 23;

/// Makes the pair, from the namespace of the other end, and enters another, the pod's. The keeper gets the sockets.
pub fn make(network: &Network) -> Result<(), Error> {
    const WHAT: &str = "cannot connect the pod to the network (--net none runs it without)";
    let gateways = packet_socket().doing(WHAT)?;
    // Whoever closes one waits for all processors (`packet_release`): without neighbours there is none for them.
    let others = network.gateway_card.map(|_| packet_socket()).transpose().doing(WHAT)?;
    let (for_gateway, for_others) = division::of(network.gateway_card);
    division::attach(&gateways, &for_gateway).doing(WHAT)?;
    if let Some(others) = &others {
        division::attach(others, &for_others).doing(WHAT)?;
    }
    let mut outside = Conversation::start().doing(WHAT)?;
    let there = File::open("/proc/self/ns/net").doing(WHAT)?;
    unshare(UnshareFlags::NEWNET).doing(WHAT)?;
    let mut inside = Conversation::start().doing(WHAT)?;
    let here = End { index: INDEX, name: NAME, address: Some(network.card) };
    let peer = End { index: PEER_INDEX, name: PEER, address: None };
    inside.add_pair(here, peer, there.as_fd(), network.mtu).doing(WHAT)?;
    // The network has no IPv6. A kernel without it has none to keep from.
    let _ = inside.keep_from_ipv6(INDEX);
    let _ = outside.keep_from_ipv6(PEER_INDEX);
    outside.raise(PEER_INDEX).doing(WHAT)?;
    for socket in [&gateways].into_iter().chain(&others) {
        bind(socket, PEER_INDEX).doing(WHAT)?;
    }
    let mut files = vec![gateways.as_fd(), outside.as_fd()];
    files.extend(others.as_ref().map(AsFd::as_fd));
    tell(UPLINK, &files).map_err(|_| Error::NoKeeper)
}

/// Sets up the interfaces of the pod's namespace, whose process 1 this is.
pub fn set_up(network: Option<&Network>) -> io::Result<()> {
    let mut netlink = Conversation::start()?;
    netlink.raise(netlink::LOOPBACK_INDEX)?;
    let Some(network) = network else { return Ok(()) };
    netlink.raise(INDEX)?;
    netlink.add_address(INDEX, network.address, network.prefix_bits)?;
    netlink.add_route(INDEX, network.gateway)
}

/// A socket for frames as they are, with headers of virtio's.
#[expect(unsafe_code, reason = "system calls that no safe crate has")]
fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: it takes three numbers. No protocol: there is nothing to receive before it is bound.
    let number = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is new, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    for option in [WITH_HEADERS, WITHOUT_OUTGOING] {
        let (on, length) = (1 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
        let value = (&raw const on).cast();
        // SAFETY: the call reads a number, of the length that is said.
        let answer = unsafe {
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, length)
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(socket)
}

/// Has it receive what comes to an interface, and send through that.
#[expect(unsafe_code, reason = "a system call with an address that no safe crate has")]
fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: zeros are such an address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ALL_PROTOCOLS;
    address.sll_ifindex = index.cast_signed();
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the call reads an address, of the length that is said.
    let answer = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

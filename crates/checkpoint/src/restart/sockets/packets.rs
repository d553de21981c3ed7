//! Packets of others, as they would arrive: what a socket is to have heard from who is not there to say it again.
//!
//! They are sent from a raw socket of the processes' network to an address that is the processes' own. So they never
//! leave it: the kernel takes them by its loopback interface, whatever sender they name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use host::processes::sockets::groups::{self, Membership};
use host::processes::sockets::set_option;
use rustix::net::{SendFlags, sendto};

use super::Sockets;
use super::actor::Actors;
use crate::error::Error;

/// Bytes of headers without options (RFC 791, RFC 8200, RFC 768, RFC 9293).
const FOUR_BYTES: usize = 20;
const SIX_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const TCP_BYTES: usize = 20;
/// Numbers of protocols.
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Hops that a packet may make.
const HOPS: u8 = 64;
/// The number of the loopback interface, in any network.
const LOOPBACK: u32 = 1;
/// The flags `FIN` and `ACK`.
const END: u8 = 0x11;

/// Raw sockets of the seed, by whether they are of IPv6: its descriptor, and ours.
#[derive(Default)]
pub(super) struct Packets {
    sockets: BTreeMap<bool, (u64, OwnedFd)>,
}

/// What the end of a TCP connection says.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub number: u32,
    pub acknowledged: u32,
    pub window: u16,
}

impl Packets {
    /// Have a datagram arrive.
    pub fn datagram(
        &mut self,
        actors: &mut Actors<'_>,
        sockets: &Sockets,
        (from, to): (SocketAddr, SocketAddr),
        bytes: &[u8],
    ) -> Result<(), Error> {
        let [from, to] = [plain(from), reachable(plain(to), from)];
        let length = u16::try_from(UDP_BYTES + bytes.len()).map_err(|_| too_long())?;
        let mut segment = Vec::with_capacity(usize::from(length));
        segment.extend(from.port().to_be_bytes());
        segment.extend(to.port().to_be_bytes());
        segment.extend(length.to_be_bytes());
        segment.extend([0; 2]);
        segment.extend(bytes);
        self.send(actors, sockets, (from, to), UDP, segment)
    }

    /// Have the end of a connection arrive.
    pub fn end(
        &mut self,
        actors: &mut Actors<'_>,
        sockets: &Sockets,
        (from, to): (SocketAddr, SocketAddr),
        end: End,
    ) -> Result<(), Error> {
        let [from, to] = [from, to].map(plain);
        let mut segment = Vec::with_capacity(TCP_BYTES);
        segment.extend(from.port().to_be_bytes());
        segment.extend(to.port().to_be_bytes());
        segment.extend(end.number.to_be_bytes());
        segment.extend(end.acknowledged.to_be_bytes());
        // Five words of header.
        segment.extend([5 << 4, END]);
        segment.extend(end.window.to_be_bytes());
        segment.extend([0; 4]);
        self.send(actors, sockets, (from, to), TCP, segment)
    }

    fn send(
        &mut self,
        actors: &mut Actors<'_>,
        sockets: &Sockets,
        (from, to): (SocketAddr, SocketAddr),
        protocol: u8,
        segment: Vec<u8>,
    ) -> Result<(), Error> {
        let packet = packet((from.ip(), to.ip()), protocol, segment)?;
        let socket = self.socket(actors, sockets, to.is_ipv6())?;
        if to.ip().is_multicast() {
            let reached = reach_group(socket, to.ip());
            reached.map_err(Error::io("reach a multicast group of the processes' own"))?;
        }
        // The port means nothing.
        let to = SocketAddr::new(to.ip(), 0);
        let sent = sendto(socket, &packet, SendFlags::DONTWAIT, &to);
        sent.map(drop).map_err(Error::io("send what has arrived at a socket"))
    }

    fn socket(
        &mut self,
        actors: &mut Actors<'_>,
        sockets: &Sockets,
        is_six: bool,
    ) -> Result<&OwnedFd, Error> {
        let entry = match self.sockets.entry(is_six) {
            Entry::Occupied(entry) => return Ok(&entry.into_mut().1),
            Entry::Vacant(entry) => entry,
        };
        let family = if is_six { libc::AF_INET6 } else { libc::AF_INET };
        let arguments =
            [family, libc::SOCK_RAW, libc::IPPROTO_RAW].map(|one| one.cast_unsigned().into());
        let mut plan = actors.plan();
        plan.must("make a raw socket", libc::SYS_socket, arguments);
        let low = plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned();
        Ok(&entry.insert((low, sockets.take(low)?)).1)
    }

    /// Close the seed's sockets.
    pub fn close(self, actors: &Actors<'_>) -> Result<(), Error> {
        let mut plan = actors.plan();
        for (low, _) in self.sockets.into_values() {
            plan.must("close a socket", libc::SYS_close, [low]);
        }
        plan.run().map(drop)
    }
}

/// Have what a raw socket sends to a group stay within its host: it comes by the loopback interface, which has to be in
/// the group as well.
fn reach_group(socket: &OwnedFd, group: IpAddr) -> std::io::Result<()> {
    // `struct ip_mreqn`. Of IPv6, for which there is no route, none were written down.
    let request = [[0; 4], [0; 4], LOOPBACK.to_ne_bytes()].concat();
    set_option(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)?;
    match groups::join(socket, LOOPBACK, group, Membership::All) {
        // It is already.
        Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => Ok(()),
        result => result,
    }
}

fn too_long() -> Error {
    Error::Image("a datagram is too long".to_owned())
}

/// An address without the cloak of IPv6 that one of IPv4 may have.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// An address by which a socket is reached that takes what comes to all.
fn reachable(to: SocketAddr, from: SocketAddr) -> SocketAddr {
    let address: IpAddr = match (to.ip().is_unspecified(), from.ip().to_canonical()) {
        (false, _) => to.ip(),
        (true, IpAddr::V4(_)) => Ipv4Addr::LOCALHOST.into(),
        (true, IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(address, to.port())
}

/// A packet of a segment whose checksum, which is zero yet, is put in.
fn packet(
    addresses: (IpAddr, IpAddr),
    protocol: u8,
    mut segment: Vec<u8>,
) -> Result<Vec<u8>, Error> {
    let length = u16::try_from(segment.len()).map_err(|_| too_long())?;
    let mut pseudo = Vec::with_capacity(SIX_BYTES);
    match addresses {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            pseudo.extend(from.octets());
            pseudo.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            pseudo.extend(from.octets());
            pseudo.extend(to.octets());
        }
        _ => return Err(Error::Image("a socket has heard from another family".to_owned())),
    }
    // Both families' sums are the same: zeros do not count.
    pseudo.extend(length.to_be_bytes());
    pseudo.extend([0, protocol]);
    let sum = checksum(&[pseudo.as_slice(), &segment].map(words).concat());
    let at = if protocol == TCP { 16 } else { 6 };
    // A sum of zero would say that there is none.
    let sum = if sum == 0 && protocol == UDP { u16::MAX } else { sum };
    segment.get_mut(at..at + 2).ok_or_else(too_long)?.copy_from_slice(&sum.to_be_bytes());
    let mut packet = Vec::with_capacity(SIX_BYTES + segment.len());
    match addresses {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = u16::try_from(FOUR_BYTES + segment.len()).map_err(|_| too_long())?;
            packet.extend([0x45, 0]);
            packet.extend(total.to_be_bytes());
            // Identification and fragments: none. The kernel puts in the checksum.
            packet.extend([0, 0, 0, 0, HOPS, protocol, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
        }
        (from, to) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(length.to_be_bytes());
            packet.extend([protocol, HOPS]);
            for address in [from, to] {
                if let IpAddr::V6(six) = address {
                    packet.extend(six.octets());
                }
            }
        }
    }
    packet.extend(segment);
    Ok(packet)
}

/// Bytes, so many that they are words of 16 bits.
fn words(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    bytes
}

/// The Internet's checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.as_chunks::<2>().0.iter().map(|pair| u64::from(u16::from_be_bytes(*pair)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_right_checksums() {
        let addresses: [(IpAddr, IpAddr); 2] = [
            (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::LOCALHOST.into()),
            (Ipv6Addr::new(1, 2, 3, 4, 5, 6, 7, 8).into(), Ipv6Addr::LOCALHOST.into()),
        ];
        for (from, to) in addresses {
            for length in [8, 9, 20] {
                let segment =
                    (0..length).map(|at| if at == 6 || at == 7 { 0 } else { at }).collect();
                let packet = packet((from, to), UDP, segment).expect("it is short");
                let header = if from.is_ipv4() { FOUR_BYTES } else { SIX_BYTES };
                let places = if from.is_ipv4() { 12..20 } else { 8..40 };
                let pseudo = [&packet[places], &[0, length, 0, UDP]].concat();
                // With its own sum, that of all is zero.
                assert_eq!(
                    checksum(&[pseudo.as_slice(), &packet[header..]].map(words).concat()),
                    0
                );
            }
        }
    }

    #[test]
    fn sockets_that_take_all_are_reached() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("it is an address");
        let check = |to: &str, from: &str, expected: &str| {
            assert_eq!(reachable(address(to), address(from)), address(expected));
        };
        check("10.0.0.2:53", "10.0.0.1:9", "10.0.0.2:53");
        check("0.0.0.0:53", "10.0.0.1:9", "127.0.0.1:53");
        check("[::]:53", "10.0.0.1:9", "127.0.0.1:53");
        check("[::]:53", "[fd00::1]:9", "[::1]:53");
    }
}

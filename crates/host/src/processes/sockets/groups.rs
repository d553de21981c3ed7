//! Multicast groups that a socket takes part in (`struct group_req` and others of RFC 3678).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use super::{get, set_option};

/// Bytes of `struct sockaddr_storage`.
const ADDRESS_BYTES: usize = 128;
/// Bytes of `struct group_filter` before the sources, and where the group, the mode and their number are in it.
const FILTER_BYTES: usize = GROUP + ADDRESS_BYTES + 8;
const GROUP: usize = 8;
const MODE: usize = GROUP + ADDRESS_BYTES;
const COUNT: usize = MODE + 4;
/// `MCAST_INCLUDE`.
const INCLUDE: u32 = 1;

/// From whom a member takes packets of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// Whether only from these; else from all but these.
    pub only: bool,
    /// Their addresses.
    pub addresses: Vec<IpAddr>,
}

/// What a member of a group may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// To be one, of packets from everybody.
    All,
    /// Not to hear that sender any more.
    Without(IpAddr),
    /// To be one, of packets from that sender and from others that are named so.
    From(IpAddr),
}

/// From whom a socket takes packets of a group that come by the interface with that number; none if it is no member.
/// At most `most` sources are told.
///
/// # Errors
///
/// As getsockopt(2); `EOPNOTSUPP` or `ENOPROTOOPT` where a socket has no groups of that family; `E2BIG` if there are
/// more sources.
pub fn sources(
    socket: impl AsFd,
    interface: u32,
    group: IpAddr,
    most: usize,
) -> io::Result<Option<Sources>> {
    let mut value = vec![0; FILTER_BYTES + most * ADDRESS_BYTES];
    value[..4].copy_from_slice(&interface.to_ne_bytes());
    value[GROUP..MODE].copy_from_slice(&address(group));
    let count = u32::try_from(most).map_err(|_| io::ErrorKind::InvalidInput)?;
    value[COUNT..COUNT + 4].copy_from_slice(&count.to_ne_bytes());
    match get(socket.as_fd(), level(group), libc::MCAST_MSFILTER, &mut value) {
        Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => return Ok(None),
        result => result?,
    };
    let word = |at: usize| value.get(at..).and_then(<[u8]>::first_chunk).copied();
    let (mode, count) = (word(MODE).map(u32::from_ne_bytes), word(COUNT).map(u32::from_ne_bytes));
    let (list, _) = value.get(FILTER_BYTES..).unwrap_or_default().as_chunks::<ADDRESS_BYTES>();
    let list = count.and_then(|count| list.get(..count as usize));
    let list = list.ok_or_else(|| io::Error::from_raw_os_error(libc::E2BIG))?;
    let addresses = list.iter().filter_map(parse).collect();
    Ok(Some(Sources { only: mode == Some(INCLUDE), addresses }))
}

/// Have a socket be a member of a group at the interface with that number.
///
/// # Errors
///
/// As setsockopt(2).
pub fn join(
    socket: impl AsFd,
    interface: u32,
    group: IpAddr,
    membership: Membership,
) -> io::Result<()> {
    let mut value = vec![0; GROUP];
    value[..4].copy_from_slice(&interface.to_ne_bytes());
    value.extend(address(group));
    let (name, source) = match membership {
        Membership::All => (libc::MCAST_JOIN_GROUP, None),
        Membership::Without(source) => (libc::MCAST_BLOCK_SOURCE, Some(source)),
        Membership::From(source) => (libc::MCAST_JOIN_SOURCE_GROUP, Some(source)),
    };
    value.extend(source.into_iter().flat_map(address));
    set_option(socket, level(group), name, &value)
}

fn level(group: IpAddr) -> i32 {
    if group.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 }
}

/// As `struct sockaddr_in` or `struct sockaddr_in6`.
fn address(address: IpAddr) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes[..2].copy_from_slice(&family.to_ne_bytes()[..2]);
    match address {
        IpAddr::V4(four) => bytes[4..8].copy_from_slice(&four.octets()),
        IpAddr::V6(six) => bytes[8..24].copy_from_slice(&six.octets()),
    }
    bytes
}

fn parse(bytes: &[u8; ADDRESS_BYTES]) -> Option<IpAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    match family {
        libc::AF_INET => Some(Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn addresses_are_what_they_were() {
        for text in ["239.1.2.3", "ff02::1:7"] {
            let expected: IpAddr = text.parse().expect("it is an address");
            assert_eq!(parse(&address(expected)), Some(expected));
        }
    }

    #[test]
    fn members_are_told_from_others() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("there is a loopback interface");
        let group = Ipv4Addr::new(239, 81, 72, 63);
        let ask = |most| sources(&socket, 1, group.into(), most);
        assert_eq!(ask(4).expect("it can be asked"), None);
        socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).expect("there is room");
        let all = Sources { only: false, addresses: Vec::new() };
        assert_eq!(ask(4).expect("it can be asked"), Some(all));
        let sender = IpAddr::from([10, 1, 1, 1]);
        join(&socket, 1, group.into(), Membership::Without(sender)).expect("there is room");
        let others = Sources { only: false, addresses: vec![sender] };
        assert_eq!(ask(4).expect("it can be asked"), Some(others));
        let error = ask(0).expect_err("there is no room");
        assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
    }
}

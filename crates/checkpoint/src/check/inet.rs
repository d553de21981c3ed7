//! What an image may say about TCP and UDP sockets.

use std::net::SocketAddr;

use super::words::require;
use crate::error::Error;
use crate::limits::{
    MAX_BACKLOG, MAX_DATAGRAM_BYTES, MAX_GROUP_SOURCES, MAX_GROUPS_OF_SOCKET,
    MAX_INTERFACE_NAME_BYTES, MAX_MESSAGES, MAX_SOCKET_BYTES,
};
use crate::state::inet::{Datagram, Group, Inet, InetRole};

/// The most that a window can be shifted by (RFC 7323, section 2.3).
const MAX_SCALE: u8 = 14;
/// Segments (RFC 9293, section 3.7.1).
const SEGMENT_BYTES: std::ops::RangeInclusive<u32> = 1..=65_535;

/// Check a socket.
pub(super) fn check(inet: &Inet) -> Result<(), Error> {
    let is_its = |address: &SocketAddr| address.is_ipv6() == inet.six;
    require(inet.name.as_ref().is_none_or(is_its), "a socket has a name of another family")?;
    let is_plain = !matches!(inet.role, InetRole::Idle | InetRole::Listens { .. });
    require(!(inet.multipath && is_plain), "a socket of Multipath TCP is wrong")?;
    let may_join = |group: &Group| is_group(group) && (inet.six || group.address.is_ipv4());
    let is_fine = inet.groups.len() <= MAX_GROUPS_OF_SOCKET && inet.groups.iter().all(may_join);
    require(is_fine, "a multicast group is wrong")?;
    match &inet.role {
        InetRole::Idle => Ok(()),
        InetRole::Listens { backlog } => {
            require(*backlog <= MAX_BACKLOG, "a socket that listens is wrong")
        }
        InetRole::Datagrams { peer, queue } => {
            require(peer.as_ref().is_none_or(is_its), "a socket has a peer of another family")?;
            let is_fine = |datagram: &Datagram| {
                is_its(&datagram.from) && datagram.bytes.len() <= MAX_DATAGRAM_BYTES
            };
            let has_all = queue.len() <= MAX_MESSAGES && queue.iter().all(is_fine);
            require(has_all && (queue.is_empty() || inet.name.is_some()), "a datagram is wrong")
        }
        InetRole::Waits { peer } | InetRole::Connects { peer } => {
            let is_fine = is_its(peer) && inet.name.is_some();
            require(is_fine, "a socket that is not connected yet is wrong")
        }
        InetRole::Ended { received } => {
            let is_fine = received.len() <= MAX_SOCKET_BYTES && inet.name.is_some();
            require(is_fine, "a connection that has ended is wrong")
        }
        InetRole::Connected(connection) => {
            let scales = connection.scales.unwrap_or((0, 0));
            let bytes = connection.received.len().saturating_add(connection.written.len());
            let is_fine = is_its(&connection.peer)
                && inet.name.is_some()
                && bytes <= MAX_SOCKET_BYTES
                && connection.unsent as usize <= connection.written.len()
                && scales.0 <= MAX_SCALE
                && scales.1 <= MAX_SCALE
                && SEGMENT_BYTES.contains(&connection.segment_bytes);
            require(is_fine, "a connection is wrong")
        }
    }
}

fn is_group(group: &Group) -> bool {
    let names = 1..=MAX_INTERFACE_NAME_BYTES;
    let is_of_family = |source: &std::net::IpAddr| source.is_ipv4() == group.address.is_ipv4();
    names.contains(&group.interface.len())
        && !group.interface.contains(['\0', '/'])
        && group.address.is_multicast()
        && group.sources.len() <= MAX_GROUP_SOURCES
        && group.sources.iter().all(is_of_family)
        && !(group.only && group.sources.is_empty())
}

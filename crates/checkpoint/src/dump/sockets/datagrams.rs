//! Datagrams of UDP that were not received yet.

use std::net::{IpAddr, SocketAddr};

use rustix::event::PollFlags;

use super::address::parse;
use super::entry::Entry;
use super::queue;
use crate::error::Error;
use crate::state::Bytes;
use crate::state::inet::Datagram;

/// Look at those that wait at a socket with that name; they stay there.
pub(super) fn read(entry: &Entry, name: Option<SocketAddr>) -> Result<Vec<Datagram>, Error> {
    if !entry.has(PollFlags::IN)? {
        return Ok(Vec::new());
    }
    let name = name.map(|name| name.ip().to_canonical());
    if name.is_some_and(|name| name.is_ipv6() && name.is_multicast()) {
        let what = "has a UDP socket with datagrams to an IPv6 group that it has not received";
        return Err(Error::unsupported(entry.pid, what));
    }
    queue::peek_all(entry)?
        .into_iter()
        .map(|arrived| {
            let from = parse(&arrived.from).filter(|from| !is_of_one_link(from));
            let from = from.ok_or_else(|| {
                let what = "has a UDP socket with a datagram of a sender that cannot be told again";
                Error::unsupported(entry.pid, what)
            })?;
            Ok(Datagram { from, bytes: Bytes(arrived.bytes) })
        })
        .collect()
}

/// Whether an address means something only together with an interface.
fn is_of_one_link(address: &SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V6(six) if six.is_unicast_link_local())
}

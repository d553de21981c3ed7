//! Options of sockets, as far as they can be given to another socket; those that cannot are refused.

use std::time::{Duration, Instant};

use host::processes::sockets::filter::filter;
use host::processes::sockets::{Count, count, option};
use rustix::net::netdevice::index_to_name;
use rustix::net::{SocketType, sockopt};

use super::entry::Entry;
use crate::error::Error;
use crate::limits::STOP_PATIENCE;
use crate::options::{self, Known, Set, Which};
use crate::state::Bytes;
use crate::state::inet::{Inet, InetRole};
use crate::state::sockets::SocketOption;

/// How often a socket is looked at that has something to send.
const LOOK: Duration = Duration::from_millis(1);
/// What the size of a segment may be set to (`TCP_MAXSEG`). One that was connected may tell of others.
const SEGMENT_BYTES: std::ops::RangeInclusive<u32> = 88..=32_767;

/// The options of a socket that it has.
pub(super) fn read(entry: &Entry) -> Result<Vec<SocketOption>, Error> {
    let kind = sockopt::socket_type(&entry.socket);
    let kind = kind.map_err(Error::io("look at a socket"))?;
    for (level, name, what) in options::REFUSED {
        let value = option(&entry.socket, level, name, 64).unwrap_or_default();
        // The kernel's own sockets below one of Multipath TCP have that.
        if value.iter().any(|byte| *byte != 0) && !value.starts_with(b"mptcp") {
            return Err(Error::unsupported(entry.pid, format!("has a socket with {what}")));
        }
    }
    let mut found = Vec::new();
    let has = |known: &&Known| kind == SocketType::DGRAM || known.which != Which::Datagrams;
    for known in options::all().filter(has) {
        let Some(value) = value(entry, known)? else { continue };
        if !known.is_usual(&value) {
            found.push(SocketOption { level: known.level, name: known.name, value: Bytes(value) });
        }
    }
    Ok(found)
}

/// The value of an option as an image has it; none of one that the socket has not.
fn value(entry: &Entry, known: &Known) -> Result<Option<Vec<u8>>, Error> {
    match known.set {
        Set::Filter => match filter(&entry.socket) {
            Ok(filter) => Ok(Some(filter)),
            Err(_) => Err(Error::unsupported(entry.pid, "has a socket with a filter of eBPF")),
        },
        Set::Interface => {
            let Ok(value) = option(&entry.socket, known.level, known.name, 4) else {
                return Ok(None);
            };
            let index = options::interface(known, value.first_chunk().copied().unwrap_or([0; 4]));
            if index == 0 {
                return Ok(None);
            }
            match index_to_name(&entry.socket, index) {
                Ok(name) => Ok(Some(name.into_bytes())),
                Err(_) => {
                    let what = "has a socket that sends by an interface that is no more";
                    Err(Error::unsupported(entry.pid, what))
                }
            }
        }
        _ => Ok(option(&entry.socket, known.level, known.name, known.bytes).ok()),
    }
}

/// Whether an option means something for a socket of the Internet, now that it is known what it does.
pub(super) fn is_meant(inet: &Inet, option: &SocketOption) -> bool {
    let number = option.value.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    match (option.level, option.name) {
        // One that has an address has no other family.
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
            inet.name.is_none_or(|name| name.ip().is_unspecified())
        }
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) if !SEGMENT_BYTES.contains(&number) => false,
        _ => {
            let known = options::find(option.level, option.name);
            known.is_none_or(|known| known.which != Which::Unconnected)
                || matches!(inet.role, InetRole::Idle | InetRole::Listens { .. })
        }
    }
}

/// Refuse a socket of datagrams that has one which is not complete yet (`UDP_CORK`, `MSG_MORE`). What is on its way out
/// counts as well, for a moment.
pub(super) fn check_sent(entry: &Entry) -> Result<(), Error> {
    let deadline = Instant::now() + STOP_PATIENCE;
    while count(&entry.socket, Count::Sent).map_err(Error::io("look at a UDP socket"))? > 0 {
        if Instant::now() > deadline {
            let what = "has a UDP socket with a datagram that is not sent yet (UDP_CORK, MSG_MORE)";
            return Err(Error::unsupported(entry.pid, what));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

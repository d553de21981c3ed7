//! TCP connections that have not begun: those that listen have not accepted them, or nobody has answered yet.
//!
//! The end of a connection that waits to be accepted is nobody's descriptor, and what has arrived there cannot be
//! looked at. So such a connection is made anew, and must not have been used. Which ones wait where, and in which
//! order, the kernel does not tell; only how many do. They are those of the tree that lead to the address of one that
//! listens, and have no other end in the tree: as many must be there as wait.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::entry::Entry;
use super::tcp;
use crate::error::Error;
use crate::proc;
use crate::state::inet::{Inet, InetRole};
use crate::state::sockets::{Protocol, Socket};

/// Say of connections that wait that they do.
pub(super) fn find(entries: &[Entry], sockets: &mut [Socket]) -> Result<(), Error> {
    for (place, entry) in entries.iter().enumerate() {
        let Some(Inet { name: Some(listener), role: InetRole::Listens { .. }, .. }) =
            inet_of(&sockets[place])
        else {
            continue;
        };
        let (listener, waiting) = (*listener, tcp::waiting_at(entry)? as usize);
        if waiting == 0 {
            continue;
        }
        let refused = |what: &str| Err(Error::unsupported(entry.pid, what));
        let all = (0..sockets.len()).filter_map(|place| Some((place, unmatched(place, sockets)?)));
        let ours: Vec<(usize, SocketAddr)> =
            all.filter(|(_, peer)| leads_to(*peer, listener)).collect();
        if ours.len() != waiting || is_ambiguous(sockets, &ours) {
            return refused("has a TCP connection that was not accepted yet, from elsewhere");
        }
        for (place, peer) in ours {
            let Protocol::Inet(one) = &mut sockets[place].protocol else { continue };
            let is_new = matches!(&one.role, InetRole::Connected(connection)
                if connection.written.is_empty() && !connection.has_sent_all);
            if !is_new || tcp::was_used(&entries[place])? {
                return refused(
                    "has sent something over a TCP connection that was not accepted yet",
                );
            }
            one.role = InetRole::Waits { peer };
        }
    }
    Ok(())
}

fn inet_of(socket: &Socket) -> Option<&Inet> {
    match &socket.protocol {
        Protocol::Inet(inet) => Some(inet),
        Protocol::Unix(_) => None,
    }
}

/// The other end's address of a connection, if that end is not in the tree.
fn unmatched(place: usize, sockets: &[Socket]) -> Option<SocketAddr> {
    let ends = |inet: &Inet| match &inet.role {
        InetRole::Connected(connection) => Some((plain(inet.name?), plain(connection.peer))),
        _ => None,
    };
    let inet = inet_of(&sockets[place])?;
    let InetRole::Connected(connection) = &inet.role else { return None };
    let (own, peer) = ends(inet)?;
    let mut others = sockets.iter().filter_map(|other| ends(inet_of(other)?));
    others.all(|other| other != (peer, own)).then_some(connection.peer)
}

/// An address without the cloak of IPv6 that one of IPv4 may have.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether who connects to an address comes to the one that listens there.
fn leads_to(peer: SocketAddr, listener: SocketAddr) -> bool {
    let (peer, listener) = (plain(peer), plain(listener));
    let is_same = match listener.ip() {
        IpAddr::V6(all) if all.is_unspecified() => true,
        all if all.is_unspecified() => peer.is_ipv4(),
        one => one == peer.ip(),
    };
    is_same && peer.port() == listener.port()
}

/// Whether they may wait at another one as well.
fn is_ambiguous(sockets: &[Socket], waiting: &[(usize, SocketAddr)]) -> bool {
    let listeners = sockets.iter().filter_map(|socket| match inet_of(socket)? {
        Inet { name: Some(name), role: InetRole::Listens { .. }, .. } => Some(*name),
        _ => None,
    });
    let listeners: Vec<SocketAddr> = listeners.collect();
    waiting.iter().any(|(_, peer)| {
        listeners.iter().filter(|listener| leads_to(*peer, **listener)).count() > 1
    })
}

/// Whom a socket is about to be connected with: only a list of all sockets of its network tells that.
pub(super) fn whom(entry: &Entry, six: bool) -> Result<Option<SocketAddr>, Error> {
    let text = proc::read(entry.pid, if six { "net/tcp6" } else { "net/tcp" })?;
    Ok(text.lines().find_map(|line| row(line, entry.inode)))
}

/// The other end's address in a line of /proc/PID/net/tcp that is about the socket with that inode.
fn row(line: &str, wanted: u64) -> Option<SocketAddr> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let inode: u64 = words.get(9)?.parse().ok()?;
    let (address, port) = words.get(2)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Words of 32 bits, each as the processor has it in memory.
    let word = |at: usize| {
        let word = u32::from_str_radix(address.get(8 * at..8 * at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.as_flattened().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    (inode == wanted && port != 0).then(|| SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("it is an address")
    }

    #[test]
    fn rows_are_parsed() {
        let four =
            "   1: 0100007F:8A2E 0200007F:1F90 02 00000001:00000000 01:0000 0 1000 0 777 2 0";
        let four = four.replace(" 0 1000 0 777", " 00000000  1000        0 777");
        assert_eq!(row(&four, 777), Some(address("127.0.0.2:8080")));
        assert_eq!(row(&four, 778), None);
        let loopback = "00000000000000000000000001000000";
        let six = format!("0: {loopback}:1F90 {loopback}:0050 02 0:0 0:0 0 0 0 9");
        assert_eq!(row(&six, 9), Some(address("[::1]:80")));
        assert_eq!(row("", 0), None);
    }

    #[test]
    fn addresses_lead_to_those_that_listen() {
        let check = |peer: &str, listener: &str, expected: bool| {
            assert_eq!(leads_to(address(peer), address(listener)), expected, "{peer} {listener}");
        };
        check("127.0.0.1:80", "127.0.0.1:80", true);
        check("127.0.0.1:80", "127.0.0.1:81", false);
        check("127.0.0.1:80", "127.0.0.2:80", false);
        check("127.0.0.1:80", "0.0.0.0:80", true);
        check("127.0.0.1:80", "[::]:80", true);
        check("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true);
        check("[::1]:80", "0.0.0.0:80", false);
    }
}

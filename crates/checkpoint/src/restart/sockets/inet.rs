//! TCP and UDP sockets are made: those that listen first, then connections, which the kernel takes as they were while
//! they are in repair (`TCP_REPAIR`). When all are there they go on: what was never sent is sent, and ends are told.

use std::os::fd::OwnedFd;

use host::processes::sockets::set_option;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, bind, connect, listen, send, shutdown};

use super::Sockets;
use super::actor::Actors;
use super::options;
use crate::error::Error;
use crate::options::{NO_QUEUE, RECEIVE_QUEUE, SEND_QUEUE};
use crate::state::State;
use crate::state::inet::{Connection, Inet, InetRole};
use crate::state::sockets::Protocol;

const TCP: i32 = libc::IPPROTO_TCP;
/// Kinds of TCP options (RFC 9293, section 3.1).
const SEGMENT: u32 = 2;
const SCALES: u32 = 3;
const SELECTIVE: u32 = 4;
const TIMESTAMPS: u32 = 8;
/// Bytes that are put into a queue at once.
const PIECE_BYTES: usize = 64 << 10;

fn all(state: &State) -> impl Iterator<Item = (usize, &Inet)> {
    state.sockets.iter().enumerate().filter_map(|(place, socket)| match &socket.protocol {
        Protocol::Inet(inet) => Some((place, inet)),
        Protocol::Unix(_) => None,
    })
}

/// Make all of them.
pub(super) fn make(
    actors: &mut Actors<'_>,
    state: &State,
    sockets: &mut Sockets,
) -> Result<(), Error> {
    let is_connection = |inet: &Inet| matches!(inet.role, InetRole::Connected(_));
    for wanted in [false, true] {
        for (place, inet) in all(state).filter(|(_, inet)| is_connection(inet) == wanted) {
            let low = open(actors, inet)?;
            sockets.inet.insert(place, low);
            let socket = sockets.take(low)?;
            options::set(&socket, &state.sockets[place], false)?;
            match &inet.role {
                // Repair changes one of the options; they are set once more when it ends.
                InetRole::Connected(connection) => repair(&socket, inet, connection)?,
                _ => begin(&socket, inet)?,
            }
        }
    }
    Ok(())
}

fn open(actors: &mut Actors<'_>, inet: &Inet) -> Result<u64, Error> {
    let family = if inet.six { libc::AF_INET6 } else { libc::AF_INET };
    let kind = match inet.role {
        InetRole::Datagrams { .. } => libc::SOCK_DGRAM,
        _ => libc::SOCK_STREAM,
    };
    let protocol = if inet.multipath { libc::IPPROTO_MPTCP } else { 0 };
    let arguments =
        [family, kind | libc::SOCK_NONBLOCK, protocol].map(|one| one.cast_unsigned().into());
    let mut plan = actors.plan();
    plan.must("make a socket", libc::SYS_socket, arguments);
    Ok(plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned())
}

/// One that is no connection.
fn begin(socket: &OwnedFd, inet: &Inet) -> Result<(), Error> {
    if let Some(name) = &inet.name {
        let what = format!("have the name {name}");
        bind(socket, name).map_err(Error::io(what))?;
    }
    match &inet.role {
        InetRole::Listens { backlog } => {
            listen(socket, i32::try_from(*backlog).unwrap_or(i32::MAX)).map_err(Error::io("listen"))
        }
        InetRole::Datagrams { peer: Some(peer) } => {
            connect(socket, peer).map_err(Error::io("connect a UDP socket"))
        }
        _ => Ok(()),
    }
}

/// A connection as it was. It stays in repair.
fn repair(socket: &OwnedFd, inet: &Inet, connection: &Connection) -> Result<(), Error> {
    let set = |name: i32, words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let done = set_option(socket, TCP, name, &bytes);
        done.map_err(Error::io(format!("make a TCP connection as it was (option {name})")))
    };
    let number = |number: i32| [number.cast_unsigned()];
    set(libc::TCP_REPAIR, &[1])?;
    let (received, written) = (connection.received.len(), connection.written.len());
    let before = |next: u32, bytes: usize| next.wrapping_sub(u32::try_from(bytes).unwrap_or(0));
    set(libc::TCP_REPAIR_QUEUE, &number(RECEIVE_QUEUE))?;
    set(libc::TCP_QUEUE_SEQ, &[before(connection.receive_next, received)])?;
    set(libc::TCP_REPAIR_QUEUE, &number(SEND_QUEUE))?;
    set(libc::TCP_QUEUE_SEQ, &[before(connection.write_next, written)])?;
    if let Some(name) = &inet.name {
        let what = format!("have the name {name}");
        bind(socket, name).map_err(Error::io(what))?;
    }
    connect(socket, &connection.peer).map_err(Error::io("make a TCP connection as it was"))?;
    let mut agreed = vec![SEGMENT, connection.segment_bytes];
    if let Some((send, receive)) = connection.scales {
        agreed.extend([SCALES, u32::from(send) | u32::from(receive) << 16]);
    }
    if connection.selective {
        agreed.extend([SELECTIVE, 0]);
    }
    if connection.timestamp.is_some() {
        agreed.extend([TIMESTAMPS, 0]);
    }
    set(libc::TCP_REPAIR_OPTIONS, &agreed)?;
    if let Some(timestamp) = connection.timestamp {
        set(libc::TCP_TIMESTAMP, &[timestamp])?;
    }
    options::enlarge(socket)?;
    set(libc::TCP_REPAIR_QUEUE, &number(RECEIVE_QUEUE))?;
    put(socket, &connection.received)?;
    set(libc::TCP_REPAIR_QUEUE, &number(SEND_QUEUE))?;
    put(socket, sent(connection).0)?;
    set(libc::TCP_REPAIR_QUEUE, &number(NO_QUEUE))?;
    set(libc::TCP_REPAIR_WINDOW, &connection.window)
}

/// What was sent of what was written, and what was not.
fn sent(connection: &Connection) -> (&[u8], &[u8]) {
    let unsent = (connection.unsent as usize).min(connection.written.len());
    connection.written.split_at(connection.written.len() - unsent)
}

fn put(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Error> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let piece = rest.get(..PIECE_BYTES).unwrap_or(rest);
        match send(socket, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
            Err(Errno::AGAIN) => {
                let what = "a TCP connection holds more than can be kept here (net.core.wmem_max)";
                return Err(Error::Host(what.to_owned()));
            }
            Err(error) => return Err(Error::io("fill the queue of a TCP connection")(error)),
        }
    }
    Ok(())
}

/// Let the connections go on, and give all their options.
pub(super) fn complete(state: &State, sockets: &Sockets) -> Result<(), Error> {
    let mut connections = Vec::new();
    for (place, inet) in all(state) {
        if let InetRole::Connected(connection) = &inet.role {
            connections.push((place, connection, sockets.take(sockets.low(place))?));
        }
    }
    for (_, _, socket) in &connections {
        let off = set_option(socket, TCP, libc::TCP_REPAIR, &0_i32.to_ne_bytes());
        off.map_err(Error::io("let a TCP connection go on"))?;
    }
    for (place, connection, socket) in &connections {
        options::set(socket, &state.sockets[*place], false)?;
        put(socket, sent(connection).1)?;
    }
    for (_, connection, socket) in &connections {
        if connection.has_sent_all {
            shutdown(socket, Shutdown::Write).map_err(Error::io("end a TCP connection"))?;
        }
    }
    for (place, _) in all(state) {
        options::set(&sockets.take(sockets.low(place))?, &state.sockets[place], true)?;
    }
    Ok(())
}

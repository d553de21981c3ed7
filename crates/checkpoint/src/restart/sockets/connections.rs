//! TCP connections in repair (`TCP_REPAIR`): what the kernel takes of them, and how they go on.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use host::processes::sockets::{option, set_option};
use rustix::io::Errno;
use rustix::net::{SendFlags, bind, connect, send};

use super::actor::Actors;
use super::options;
use crate::error::Error;
use crate::limits::SOCKET_PATIENCE;
use crate::options::{NO_QUEUE, RECEIVE_QUEUE, SEND_QUEUE};
use crate::state::State;
use crate::state::inet::{Connection, Inet, InetRole};
use crate::state::sockets::Protocol;
use crate::timestamps;

const TCP: i32 = libc::IPPROTO_TCP;
/// Kinds of TCP options (RFC 9293, section 3.1).
const SEGMENT: u32 = 2;
const SCALES: u32 = 3;
const SELECTIVE: u32 = 4;
const TIMESTAMPS: u32 = 8;
/// How often a connection is looked at that is to change.
const LOOK: Duration = Duration::from_micros(200);
/// Bytes that are put into a queue at once.
const PIECE_BYTES: usize = 64 << 10;

pub(super) fn all(state: &State) -> impl Iterator<Item = (usize, &Inet)> {
    state.sockets.iter().enumerate().filter_map(|(place, socket)| match &socket.protocol {
        Protocol::Inet(inet) => Some((place, inet)),
        Protocol::Unix(_) => None,
    })
}

pub(super) fn open(actors: &mut Actors<'_>, inet: &Inet) -> Result<u64, Error> {
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

/// Give it its name.
pub(super) fn bind_to(socket: &OwnedFd, inet: &Inet) -> Result<(), Error> {
    let Some(name) = &inet.name else { return Ok(()) };
    bind(socket, name).map_err(Error::io(format!("have the name {name}")))
}

/// Wait until a TCP socket is in that state.
pub(super) fn wait_for(socket: &OwnedFd, wanted: u8) -> Result<(), Error> {
    let deadline = Instant::now() + SOCKET_PATIENCE;
    loop {
        let info = option(socket, TCP, libc::TCP_INFO, 1);
        let info = info.map_err(Error::io("ask about a TCP socket"))?;
        let state = info.first().copied().unwrap_or(0);
        if state == wanted {
            return Ok(());
        }
        if Instant::now() > deadline {
            let what = format!("a TCP connection in state {state} does not come to state {wanted}");
            return Err(Error::Host(what));
        }
        std::thread::sleep(LOOK);
    }
}

/// A connection as it was. It stays in repair.
pub(super) fn repair(socket: &OwnedFd, inet: &Inet, connection: &Connection) -> Result<(), Error> {
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
    bind_to(socket, inet)?;
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
        set(libc::TCP_TIMESTAMP, &[timestamps::show(timestamp)])?;
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
pub(super) fn sent(connection: &Connection) -> (&[u8], &[u8]) {
    let unsent = (connection.unsent as usize).min(connection.written.len());
    connection.written.split_at(connection.written.len() - unsent)
}

pub(super) fn put(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Error> {
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

/// Let a connection in repair go on.
pub(super) fn go_on(socket: &OwnedFd) -> Result<(), Error> {
    let off = set_option(socket, TCP, libc::TCP_REPAIR, &0_i32.to_ne_bytes());
    off.map_err(Error::io("let a TCP connection go on"))
}

//! TCP and UDP sockets.
//!
//! All connections are put in repair before any is looked at (see `repair.rs`).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use host::processes::sockets::{Count, End, address, count, option, set_option};
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SocketType, recv};

use super::address::parse;
use super::entry::Entry;
use super::tcp::{
    CLOSE_WAIT, CLOSED, CLOSING, END_IS_UNDER_WAY, ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2,
    HAS_RECEIVED_ALL, HAS_SENT_ALL, LAST_ACK, LISTENS, SYN_SENT, WITHOUT_CONNECTION, info, kind,
    word,
};
use super::{datagrams, waiting};
use crate::error::Error;
use crate::limits::MAX_SOCKET_BYTES;
use crate::options::{NO_QUEUE, RECEIVE_QUEUE, SEND_QUEUE};
use crate::repair::Repaired;
use crate::state::Bytes;
use crate::state::inet::{Connection, Inet, InetRole};
use crate::state::sockets::{Protocol, Socket};
use crate::timestamps;

/// Bits of `tcpi_options`.
const TIMESTAMPS: u8 = 1;
const SELECTIVE: u8 = 2;
const SCALES: u8 = 4;
/// How often a connection is looked at that changes.
const LOOKS: usize = 100;
const TCP: i32 = libc::IPPROTO_TCP;

/// Put all connections in repair.
pub(super) fn begin<'a>(
    repaired: &mut Repaired,
    entries: impl Iterator<Item = &'a Entry>,
) -> Result<(), Error> {
    for entry in entries {
        let (kind, multipath) = kind(entry)?;
        if kind == SocketType::STREAM && !WITHOUT_CONNECTION.contains(&info(entry)?[0]) {
            if multipath {
                return Err(Error::unsupported(entry.pid, "has a connection of Multipath TCP"));
            }
            let socket = entry.socket.try_clone().map_err(Error::io("take a TCP socket"))?;
            repaired.add(entry.pid, socket)?;
        }
    }
    Ok(())
}

/// A socket, whose options were read; if it is a connection it is in repair.
pub(super) fn describe(entry: &Entry, six: bool, sending: Option<Sending>) -> Result<Inet, Error> {
    let refused = |what: &str| Err(Error::unsupported(entry.pid, what));
    let name = address(&entry.socket, End::Own).map_err(Error::io("ask for a name"))?;
    let name = parse(&name).filter(|name| name.port() != 0);
    if entry.has(PollFlags::PRI)? {
        return refused("has a socket with urgent data");
    }
    if entry.has_error()? {
        return refused("has a socket with an error that it has not been told");
    }
    let peer = address(&entry.socket, End::Peer).ok().and_then(|peer| parse(&peer));
    let (kind, multipath) = kind(entry)?;
    if kind == SocketType::DGRAM {
        super::options::check_sent(entry)?;
        let role = InetRole::Datagrams { peer, queue: datagrams::read(entry, name)? };
        return Ok(Inet { six, multipath, name, role, groups: Vec::new() });
    }
    let info = info(entry)?;
    let role = match info[0] {
        CLOSED if name.is_some() && entry.has(PollFlags::RDHUP)? => {
            let bytes = rustix::io::ioctl_fionread(&entry.socket).unwrap_or(0);
            InetRole::Ended { received: Bytes(peek(entry, bytes)?) }
        }
        CLOSED => InetRole::Idle,
        // Of one that listens, `tcpi_sacked` says how many may wait.
        LISTENS => InetRole::Listens { backlog: word(&info, 28) },
        SYN_SENT => match waiting::whom(entry, six)? {
            Some(peer) => InetRole::Connects { peer },
            None => return refused("has a TCP connection that changes"),
        },
        ESTABLISHED | FIN_WAIT_1 | FIN_WAIT_2 | CLOSE_WAIT | LAST_ACK | CLOSING => {
            let (Some(peer), Some(sending)) = (peer, sending) else {
                return refused("has a TCP connection with nobody");
            };
            InetRole::Connected(Box::new(connection(entry, peer, sending)?))
        }
        state => return refused(&format!("has a TCP connection in state {state}")),
    };
    Ok(Inet { six, multipath, name, role, groups: Vec::new() })
}

/// What has arrived at an end that is there too counts as acknowledged, and what that end has room for is what may be
/// sent: each end may have been seen at another moment.
pub(super) fn acknowledge(sockets: &mut [Socket]) {
    let mut arrived = BTreeMap::new();
    for socket in &*sockets {
        let Protocol::Inet(Inet { name: Some(name), role, .. }) = &socket.protocol else {
            continue;
        };
        let InetRole::Connected(connection) = role else { continue };
        let [_, _, _, bytes, from] = connection.window;
        let room = from.wrapping_add(bytes).wrapping_sub(connection.receive_next);
        let room = if room.cast_signed() > 0 { room } else { 0 };
        arrived.insert((connection.peer, *name), (connection.receive_next, room));
    }
    for socket in sockets {
        let Protocol::Inet(Inet { name: Some(name), role, .. }) = &mut socket.protocol else {
            continue;
        };
        let InetRole::Connected(connection) = role else { continue };
        let Some(&(next, room)) = arrived.get(&(*name, connection.peer)) else { continue };
        let missing = connection.write_next.wrapping_sub(next);
        if let Some(done) = connection.written.len().checked_sub(missing as usize) {
            connection.written.0.drain(..done);
            connection.unsent = connection.unsent.min(missing);
            connection.window[1] = room;
            connection.window[2] = connection.window[2].max(room);
        }
    }
}

/// What a connection has to send.
pub(super) struct Sending {
    written: Vec<u8>,
    next: u32,
    unsent: usize,
    has_sent_all: bool,
}

fn get(entry: &Entry, name: i32, bytes: usize) -> Result<Vec<u8>, Error> {
    option(&entry.socket, TCP, name, bytes).map_err(Error::io("look into a TCP connection"))
}

fn number(entry: &Entry, name: i32) -> Result<u32, Error> {
    Ok(word(&get(entry, name, 4)?, 0))
}

fn use_queue(entry: &Entry, queue: i32) -> Result<(), Error> {
    let used = set_option(&entry.socket, TCP, libc::TCP_REPAIR_QUEUE, &queue.to_ne_bytes());
    used.map_err(Error::io("look into a TCP connection"))
}

/// Look at what a connection in repair has to send; none of what is no connection.
///
/// The kernel's timers may still move bytes from one end to the other. So what is to be sent is looked at in all
/// connections before what has arrived is in any: some may be seen twice, and the receiver drops them when they are
/// sent once more, but none is seen nowhere.
pub(super) fn sending(entry: &Entry) -> Result<Option<Sending>, Error> {
    if kind(entry)?.0 != SocketType::STREAM {
        return Ok(None);
    }
    let state = info(entry)?[0];
    if WITHOUT_CONNECTION.contains(&state) {
        return Ok(None);
    }
    let io = || Error::io("look into a TCP connection");
    use_queue(entry, SEND_QUEUE)?;
    let write_next = number(entry, libc::TCP_QUEUE_SEQ)?;
    // The end has a number too, and counts as sent until it is acknowledged.
    let sent = count(&entry.socket, Count::Sent).map_err(io())?;
    let written =
        peek(entry, sent.saturating_sub(usize::from(END_IS_UNDER_WAY.contains(&state))) as u64)?;
    let unsent = count(&entry.socket, Count::Unsent).map_err(io())?.min(written.len());
    use_queue(entry, NO_QUEUE)?;
    let has_sent_all = HAS_SENT_ALL.contains(&state);
    let next = write_next.wrapping_sub(u32::from(has_sent_all));
    Ok(Some(Sending { written, next, unsent, has_sent_all }))
}

/// What a connection in repair is made of; nothing may arrive meanwhile.
fn connection(entry: &Entry, peer: SocketAddr, sending: Sending) -> Result<Connection, Error> {
    for _ in 0..LOOKS {
        use_queue(entry, RECEIVE_QUEUE)?;
        let before = number(entry, libc::TCP_QUEUE_SEQ)?;
        let info = info(entry)?;
        let received = peek(entry, rustix::io::ioctl_fionread(&entry.socket).unwrap_or(0));
        let window = get(entry, libc::TCP_REPAIR_WINDOW, 20)?;
        let after = number(entry, libc::TCP_QUEUE_SEQ)?;
        use_queue(entry, NO_QUEUE)?;
        if before != after {
            continue;
        }
        let has_received_all = HAS_RECEIVED_ALL.contains(&info[0]);
        let receive_next = after.wrapping_sub(u32::from(has_received_all));
        let options = info[5];
        return Ok(Connection {
            peer,
            receive_next,
            received: Bytes(received?),
            write_next: sending.next,
            unsent: u32::try_from(sending.unsent).unwrap_or(0),
            written: Bytes(sending.written),
            window: window_before(receive_next, &window),
            segment_bytes: number(entry, libc::TCP_MAXSEG)?,
            scales: (options & SCALES != 0).then_some((info[6] & 0xf, info[6] >> 4)),
            selective: options & SELECTIVE != 0,
            timestamp: match options & TIMESTAMPS {
                0 => None,
                _ => Some(timestamps::keep(number(entry, libc::TCP_TIMESTAMP)?)),
            },
            has_sent_all: sending.has_sent_all,
            has_received_all,
            ended_last: info[0] == LAST_ACK,
        });
    }
    Err(Error::unsupported(entry.pid, "has a TCP connection at which something arrives"))
}

/// The windows (`struct tcp_repair_window`) as the kernel takes them of a connection to which so much has arrived.
fn window_before(receive_next: u32, window: &[u8]) -> [u32; 5] {
    let mut window: [u32; 5] = std::array::from_fn(|index| word(window, 4 * index));
    // What last told of the window to send may have had bytes for which there was no room; and the window to receive
    // may have been announced from behind the end on, which is to arrive once more.
    for index in [0, 4] {
        if window[index].wrapping_sub(receive_next).cast_signed() > 0 {
            window[index] = receive_next;
        }
    }
    window
}

/// What is in the queue that is looked at.
fn peek(entry: &Entry, bytes: u64) -> Result<Vec<u8>, Error> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes > MAX_SOCKET_BYTES {
        return Err(Error::unsupported(entry.pid, "has a socket with too much in its queue"));
    }
    let mut found = vec![0; bytes];
    if bytes == 0 {
        return Ok(found);
    }
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let read = recv(&entry.socket, &mut *found, flags);
    let (read, _) = read.map_err(Error::io("look into a TCP connection"))?;
    match read == bytes {
        true => Ok(found),
        false => Err(Error::unsupported(entry.pid, "has a TCP connection that changes")),
    }
}

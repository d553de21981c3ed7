//! Queues are filled: each message is sent again, by a socket with the name that its sender had.

use super::Sockets;
use super::actor::Actors;
use super::names::{self, is_same};
use super::options;
use super::unix::{self, all, open};
use crate::error::Error;
use crate::limits::MAX_MESSAGE_BYTES;
use crate::restart::opened::Opened;
use crate::state::State;
use crate::state::sockets::{Message, Unix, UnixKind, UnixName, UnixRole};

/// Bytes of a header of control data (`struct cmsghdr`).
const CONTROL_HEADER_BYTES: u64 = 16;

/// Fill the queue of every Unix socket.
pub(super) fn fill(
    actors: &mut Actors<'_>,
    state: &State,
    sockets: &Sockets,
    opened: Opened,
) -> Result<(), Error> {
    for (place, socket) in all(state) {
        if socket.queue.is_empty() {
            continue;
        }
        let peer = match &socket.role {
            UnixRole::Connected { peer } if is_made_together(state, place, *peer) => {
                sockets.unix.lows.get(peer).copied()
            }
            UnixRole::Left { .. } => sockets.unix.left.get(&place).copied(),
            _ => None,
        };
        for message in &socket.queue {
            match peer {
                Some(peer) => send(actors, sockets, (peer, None), message, opened)?,
                None => send_by_name(actors, state, sockets, place, message, opened)?,
            }
        }
    }
    Ok(())
}

/// Whether two sockets are connected already.
fn is_made_together(state: &State, place: usize, peer: usize) -> bool {
    let (Some(one), Some(other)) = (unix::unix(state, place), unix::unix(state, peer)) else {
        return false;
    };
    one.kind != UnixKind::Datagrams || unix::is_pair(place, one, peer, other)
}

/// Send a datagram to the name of its receiver, by the socket that has the sender's name, or one that has it for the
/// moment.
fn send_by_name(
    actors: &mut Actors<'_>,
    state: &State,
    sockets: &Sockets,
    receiver: usize,
    message: &Message,
    opened: Opened,
) -> Result<(), Error> {
    let nameless = || Error::Host("a socket without a name holds datagrams".to_owned());
    let to = sockets.unix.reach(state, receiver).ok_or_else(nameless)?;
    let has = |socket: &Unix, name: &UnixName| {
        socket.kind == UnixKind::Datagrams
            && socket.name.as_ref().is_some_and(|other| is_same(other, name))
    };
    let found = message.from.as_ref().and_then(|name| {
        let place = all(state).find(|(_, socket)| has(socket, name))?.0;
        sockets.unix.lows.get(&place).copied()
    });
    let sender = match found {
        Some(sender) => sender,
        None => open(actors, UnixKind::Datagrams)?,
    };
    if let Some(name) = message.from.as_ref().filter(|_| found.is_none()) {
        names::bind(actors, sender, name)?;
    }
    names::where_it_begins(actors, to, |actors| {
        send(actors, sockets, (sender, Some(to)), message, opened)
    })?;
    if found.is_none() {
        actors.act(None, |plan| plan.must("close a socket", libc::SYS_close, [sender]))?;
    }
    Ok(())
}

/// Send a message over a socket of the seed: what is special about it by somebody of the pod, else by ourselves.
fn send(
    actors: &mut Actors<'_>,
    sockets: &Sockets,
    (sender, to): (u64, Option<&UnixName>),
    message: &Message,
    opened: Opened,
) -> Result<(), Error> {
    let socket = sockets.take(sender)?;
    options::enlarge(&socket)?;
    if to.is_none() && message.by.is_none() && message.files.is_empty() {
        return send_plain(&socket, &message.bytes);
    }
    if message.bytes.len() > MAX_MESSAGE_BYTES {
        return Err(Error::Host("a message to a socket is too long".to_owned()));
    }
    let results = actors.act(message.by.as_ref(), |plan| {
        let (bytes, length) = (plan.data(&message.bytes), message.bytes.len() as u64);
        let piece = plan.words(&[bytes, length]);
        let address = to.map(names::address).unwrap_or_default();
        let at = if address.is_empty() { 0 } else { plan.data(&address) };
        let files: Vec<u8> = message
            .files
            .iter()
            .flat_map(|file| {
                let number = opened.description(*file);
                u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
            })
            .collect();
        let (mut control, mut control_bytes) = (0, 0);
        if !files.is_empty() {
            control_bytes = CONTROL_HEADER_BYTES + files.len() as u64;
            let kind = u64::from(libc::SCM_RIGHTS.cast_unsigned()) << 32;
            let header = [control_bytes, kind | u64::from(libc::SOL_SOCKET.cast_unsigned())];
            let header = header.map(u64::to_le_bytes);
            control = plan.data(&[header.as_flattened(), &files, &[0; 8]].concat());
            control_bytes = control_bytes.next_multiple_of(8);
        }
        let header = [at, address.len() as u64, piece, 1, control, control_bytes, 0];
        let header = plan.words(&header);
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).cast_unsigned().into();
        plan.must("send what is in a queue", libc::SYS_sendmsg, [sender, header, flags]);
    })?;
    match results.first() {
        Some(sent) if *sent == message.bytes.len() as i64 => Ok(()),
        _ => Err(full()),
    }
}

fn send_plain(socket: &std::os::fd::OwnedFd, bytes: &[u8]) -> Result<(), Error> {
    use rustix::net::{SendFlags, send};
    let mut rest = bytes;
    loop {
        let sent = match send(socket, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => sent,
            Err(rustix::io::Errno::AGAIN) => return Err(full()),
            Err(error) => return Err(Error::io("send what is in a queue")(error)),
        };
        rest = rest.get(sent..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn full() -> Error {
    let what = "a socket holds more than can be sent here at once (net.core.wmem_max)";
    Error::Host(what.to_owned())
}

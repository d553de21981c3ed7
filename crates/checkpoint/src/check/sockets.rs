//! What an image may say about sockets.

use super::{MAX_PID, inet, is_name, is_path, require};
use crate::error::Error;
use crate::limits::{
    MAX_BACKLOG, MAX_DESCRIPTIONS, MAX_MESSAGE_BYTES, MAX_MESSAGE_FILES, MAX_MESSAGES,
    MAX_SOCKET_BYTES, MAX_UNIX_NAME_BYTES,
};
use crate::options;
use crate::state::sockets::{Message, Protocol, Socket, Unix, UnixKind, UnixName, UnixRole, Who};
use crate::state::{OpenFile, State};

/// Check all sockets.
pub(super) fn check(state: &State) -> Result<(), Error> {
    require(state.sockets.len() <= MAX_DESCRIPTIONS, "it has too many sockets")?;
    let mut opened = vec![0_u32; state.sockets.len()];
    for description in &state.descriptions {
        if let OpenFile::Socket { index } = &description.file {
            let count = opened.get_mut(*index);
            *count.ok_or_else(|| Error::Image("a socket is missing".to_owned()))? += 1;
        }
    }
    require(opened.iter().all(|count| *count == 1), "a socket is open twice, or not at all")?;
    for (index, socket) in state.sockets.iter().enumerate() {
        for option in &socket.options {
            let known = options::find(option.level, option.name);
            let is_fine = known.is_some_and(|known| option.value.len() <= known.bytes);
            require(is_fine, "a socket has an unknown option")?;
        }
        match &socket.protocol {
            Protocol::Unix(unix) => check_unix(index, unix, state)?,
            Protocol::Inet(inet) => inet::check(inet)?,
        }
    }
    check_waiting(state)
}

fn unix(socket: &Socket) -> Option<&Unix> {
    match &socket.protocol {
        Protocol::Unix(unix) => Some(unix),
        Protocol::Inet(_) => None,
    }
}

/// Whoever waits to be accepted does so at one listener, and is of its kind.
fn check_waiting(state: &State) -> Result<(), Error> {
    let mut waits = vec![0_u32; state.sockets.len()];
    for listener in state.sockets.iter().filter_map(unix) {
        let UnixRole::Listens { waiting, .. } = &listener.role else { continue };
        for &index in waiting.iter().flatten() {
            let client = state.sockets.get(index).and_then(unix);
            let is_fine = client.is_some_and(|client| {
                matches!(client.role, UnixRole::Waits { .. }) && client.kind == listener.kind
            });
            require(is_fine, "a socket that waits to be accepted is wrong")?;
            waits[index] += 1;
        }
    }
    for (socket, count) in state.sockets.iter().zip(waits) {
        let does = unix(socket).is_some_and(|unix| matches!(unix.role, UnixRole::Waits { .. }));
        require(count == u32::from(does), "a socket waits nowhere, or twice")?;
    }
    Ok(())
}

fn check_unix(index: usize, socket: &Unix, state: &State) -> Result<(), Error> {
    let is_datagrams = socket.kind == UnixKind::Datagrams;
    require(socket.name.as_ref().is_none_or(is_unix_name), "a socket has a wrong name")?;
    require(socket.peer_is.as_ref().is_none_or(is_who), "a socket has an impossible peer")?;
    require(socket.shutdown <= 3, "a socket is shut down in an impossible way")?;
    match &socket.role {
        UnixRole::Idle => {
            require(is_datagrams || socket.queue.is_empty(), "a socket holds what nobody sent")?;
        }
        UnixRole::Waits { by } => {
            require(is_who(by), "a socket was connected by an impossible process")?;
            require(!is_datagrams && socket.queue.is_empty(), "a socket waits for nothing")?;
        }
        UnixRole::Listens { backlog, waiting } => {
            let is_fine = !is_datagrams
                && socket.queue.is_empty()
                && *backlog <= MAX_BACKLOG
                && waiting.len() <= *backlog as usize + 1
                && socket.name.is_some();
            require(is_fine, "a socket that listens is wrong")?;
        }
        UnixRole::Connected { peer } => {
            let other = state.sockets.get(*peer).and_then(unix);
            let is_back = |other: &Unix| match other.role {
                UnixRole::Connected { peer } => peer == index,
                _ => false,
            };
            let is_fine = other.is_some_and(|other| {
                let may_be_one_way = is_datagrams && other.name.is_some();
                other.kind == socket.kind
                    && (may_be_one_way || is_back(other))
                    && (is_datagrams || *peer != index)
            });
            require(is_fine, "a socket has a wrong peer")?;
        }
        UnixRole::Left { name, reset } => {
            let may_be_reset = !is_datagrams && socket.shutdown == 3;
            require(!reset || may_be_reset, "a socket was reset that cannot be")?;
            require(
                name.as_ref().is_none_or(is_unix_name),
                "a socket had a peer with a wrong name",
            )?;
        }
    }
    require(socket.queue.len() <= MAX_MESSAGES, "a socket holds too many messages")?;
    let mut bytes = 0;
    for message in &socket.queue {
        bytes += message.bytes.len();
        check_message(message, socket.kind, state)?;
    }
    require(bytes <= MAX_SOCKET_BYTES, "a socket holds too much")
}

fn check_message(message: &Message, kind: UnixKind, state: &State) -> Result<(), Error> {
    let is_fine = (kind != UnixKind::Stream || !message.bytes.is_empty())
        && message.by.as_ref().is_none_or(is_who)
        && (message.bytes.len() <= MAX_MESSAGE_BYTES
            || (message.by.is_none() && message.files.is_empty()))
        && message.from.as_ref().is_none_or(is_unix_name)
        && message.files.len() <= MAX_MESSAGE_FILES
        && message.files.iter().all(|file| *file < state.descriptions.len());
    require(is_fine, "a message is wrong")
}

fn is_who(who: &Who) -> bool {
    who.pid < MAX_PID
}

fn is_unix_name(name: &UnixName) -> bool {
    match name {
        UnixName::Abstract(bytes) => bytes.len() < MAX_UNIX_NAME_BYTES,
        UnixName::Path { path, directory, file } => {
            let starts_somewhere = match directory {
                Some(directory) => is_path(directory) && !path.starts_with('/'),
                None => is_path(path),
            };
            let is_short = !path.is_empty() && path.len() <= MAX_UNIX_NAME_BYTES && is_name(path);
            is_short && starts_somewhere && file.as_ref().is_none_or(|file| file.mode <= 0o7777)
        }
    }
}

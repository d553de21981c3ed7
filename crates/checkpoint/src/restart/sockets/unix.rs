//! Unix sockets are made: pairs and connections, then all else that is bound, then those that listen and those that
//! wait there.
//!
//! An end that has a name shared by others was accepted: it gets it by a connection to a socket that listens under that
//! name for the moment, before the one that has it is there. So each end is told of the process that it is to be told
//! of, too.

use std::collections::BTreeMap;

use super::actor::Actors;
use super::names::{self, bind, bind_and, is_same};
use crate::error::Error;
use crate::restart::plan::Plan;
use crate::restart::slots::halves;
use crate::state::State;
use crate::state::sockets::{Protocol, Unix, UnixKind, UnixName, UnixRole, Who};

/// What the seed has made.
#[derive(Default)]
pub(super) struct Made {
    /// Its descriptors, by the sockets' places.
    pub lows: BTreeMap<usize, u64>,
    /// Its descriptors of the other ends of those whose peers are no more; to be closed.
    pub left: BTreeMap<usize, u64>,
    /// Names by which sockets of datagrams can be reached whose own leads nowhere; to be removed.
    pub reached: BTreeMap<usize, UnixName>,
}

impl Made {
    /// The name by which a socket can be reached.
    pub fn reach<'a>(&'a self, state: &'a State, place: usize) -> Option<&'a UnixName> {
        self.reached.get(&place).or_else(|| unix(state, place)?.name.as_ref())
    }
}

/// An end of a connection.
#[derive(Clone, Copy)]
struct End<'a> {
    name: Option<&'a UnixName>,
    peer_is: Option<&'a Who>,
}

/// A Unix socket of the image.
pub(super) fn unix(state: &State, place: usize) -> Option<&Unix> {
    match &state.sockets.get(place)?.protocol {
        Protocol::Unix(unix) => Some(unix),
        Protocol::Inet(_) => None,
    }
}

/// All Unix sockets of the image.
pub(super) fn all(state: &State) -> impl Iterator<Item = (usize, &Unix)> {
    (0..state.sockets.len()).filter_map(|place| Some((place, unix(state, place)?)))
}

/// Make all of them.
pub(super) fn make(actors: &mut Actors<'_>, state: &State) -> Result<Made, Error> {
    let mut made = Made::default();
    for (place, socket) in all(state) {
        match &socket.role {
            UnixRole::Connected { peer } => connected(actors, state, place, *peer, &mut made)?,
            UnixRole::Left { name, .. } => left(actors, state, place, name.as_ref(), &mut made)?,
            _ => {}
        }
    }
    for (place, socket) in all(state) {
        let is_waiting = matches!(socket.role, UnixRole::Listens { .. });
        if is_waiting || made.lows.contains_key(&place) {
            continue;
        }
        let low = plain(actors, state, (place, socket), &mut made)?;
        made.lows.insert(place, low);
    }
    for (place, socket) in all(state) {
        if let UnixRole::Listens { backlog, waiting } = &socket.role {
            let low = listener(actors, state, socket, *backlog, (waiting, &made))?;
            made.lows.insert(place, low);
        }
    }
    Ok(made)
}

/// A socket that is bound, if it has a name.
fn plain(
    actors: &mut Actors<'_>,
    state: &State,
    (place, socket): (usize, &Unix),
    made: &mut Made,
) -> Result<u64, Error> {
    let low = open(actors, socket.kind)?;
    let Some(name) = &socket.name else { return Ok(low) };
    let other = match name {
        UnixName::Path { file: None, .. } if is_to_be_reached(state, place, socket) => {
            names::another(name, place)
        }
        _ => None,
    };
    bind_and(actors, low, name, |actors| match &other {
        Some(other) => names::link(actors, name, other),
        None => Ok(()),
    })?;
    made.reached.extend(other.map(|other| (place, other)));
    Ok(low)
}

/// Whether somebody is to send to a socket by its name, or to be connected with it by that.
fn is_to_be_reached(state: &State, place: usize, socket: &Unix) -> bool {
    let is_peer = |other: &Unix| other.role == UnixRole::Connected { peer: place };
    let is_anybodys_peer = || all(state).any(|(_, other)| is_peer(other));
    socket.kind == UnixKind::Datagrams && (!socket.queue.is_empty() || is_anybodys_peer())
}

fn number(kind: UnixKind) -> u64 {
    let kind = match kind {
        UnixKind::Stream => libc::SOCK_STREAM,
        UnixKind::Datagrams => libc::SOCK_DGRAM,
        UnixKind::Packets => libc::SOCK_SEQPACKET,
    };
    (kind | libc::SOCK_NONBLOCK).cast_unsigned().into()
}

const FAMILY: u64 = libc::AF_UNIX.cast_unsigned() as u64;

pub(super) fn open(actors: &mut Actors<'_>, kind: UnixKind) -> Result<u64, Error> {
    let mut plan = actors.plan();
    plan.must("make a socket", libc::SYS_socket, [FAMILY, number(kind), 0]);
    Ok(first(&plan.run()?.results))
}

fn first(results: &[i64]) -> u64 {
    results.first().copied().unwrap_or(-1).cast_unsigned()
}

/// Two ends without names.
fn pair(actors: &mut Actors<'_>, who: Option<&Who>, kind: UnixKind) -> Result<[u64; 2], Error> {
    let mut room = 0;
    actors.act(who, |plan| {
        room = plan.words(&[0]);
        plan.must("make a pair of sockets", libc::SYS_socketpair, [FAMILY, number(kind), 0, room]);
    })?;
    Ok(halves(actors.area, room)?.map(u64::from))
}

/// One of two that are connected, unless the other has been made with it already.
fn connected(
    actors: &mut Actors<'_>,
    state: &State,
    place: usize,
    peer: usize,
    made: &mut Made,
) -> Result<(), Error> {
    let (Some(one), Some(other)) = (unix(state, place), unix(state, peer)) else { return Ok(()) };
    if made.lows.contains_key(&place) {
        return Ok(());
    }
    if one.kind == UnixKind::Datagrams {
        if !is_pair(place, one, peer, other) {
            return Ok(());
        }
        let who = one.peer_is.as_ref().or(other.peer_is.as_ref());
        let lows = pair(actors, who, one.kind)?;
        for (low, socket) in lows.into_iter().zip([one, other]) {
            if let Some(name) = &socket.name {
                bind(actors, low, name)?;
            }
        }
        made.lows.extend([(place, lows[0]), (peer, lows[1])]);
        return Ok(());
    }
    let ends = [one, other]
        .map(|socket| End { name: socket.name.as_ref(), peer_is: socket.peer_is.as_ref() });
    let lows = connection(actors, state, one.kind, ends)?;
    made.lows.extend([(place, lows[0]), (peer, lows[1])]);
    Ok(())
}

/// Whether two sockets of datagrams are made together. Others are connected by their names, later.
pub(super) fn is_pair(place: usize, one: &Unix, peer: usize, other: &Unix) -> bool {
    let is_mutual = matches!(other.role, UnixRole::Connected { peer } if peer == place);
    let is_told = one.peer_is.is_some() || other.peer_is.is_some();
    is_mutual && peer != place && (is_told || one.name.is_none() || other.name.is_none())
}

/// One whose peer is no more.
fn left(
    actors: &mut Actors<'_>,
    state: &State,
    place: usize,
    name: Option<&UnixName>,
    made: &mut Made,
) -> Result<(), Error> {
    let Some(one) = unix(state, place) else { return Ok(()) };
    if one.kind == UnixKind::Datagrams && name.is_some() {
        // It is connected by that name, later.
        return Ok(());
    }
    let mine = End { name: one.name.as_ref(), peer_is: one.peer_is.as_ref() };
    let lows = match one.kind {
        UnixKind::Datagrams => {
            let lows = pair(actors, mine.peer_is, one.kind)?;
            if let Some(name) = mine.name {
                bind(actors, lows[0], name)?;
            }
            lows
        }
        _ => connection(actors, state, one.kind, [mine, End { name, peer_is: None }])?,
    };
    made.lows.insert(place, lows[0]);
    made.left.insert(place, lows[1]);
    Ok(())
}

/// Two ends of a stream, or of packets.
fn connection(
    actors: &mut Actors<'_>,
    state: &State,
    kind: UnixKind,
    ends: [End<'_>; 2],
) -> Result<[u64; 2], Error> {
    let is_shared = |name: &UnixName| {
        let has_it = |other: &Unix| other.name.as_ref().is_some_and(|other| is_same(other, name));
        all(state).filter(|(_, other)| other.kind == kind && has_it(other)).count() > 1
    };
    let has_file = |name: &UnixName| matches!(name, UnixName::Path { file: Some(_), .. });
    let score = |end: &End<'_>| match end.name {
        None => 0,
        Some(name) if is_shared(name) => 3,
        Some(name) if has_file(name) => 1,
        Some(_) => 2,
    };
    let accepted = usize::from(score(&ends[1]) > score(&ends[0]));
    let (server, client) = (ends[accepted], ends[1 - accepted]);
    let Some(name) = server.name else {
        return pair(actors, server.peer_is.or(client.peer_is), kind);
    };
    let [listener, from] = [open(actors, kind)?, open(actors, kind)?];
    if let Some(name) = client.name {
        bind(actors, from, name)?;
    }
    let to = bind_and(actors, listener, name, |actors| {
        actors.act(client.peer_is, |plan| {
            plan.must("listen for a moment", libc::SYS_listen, [listener, 1]);
        })?;
        actors.act(server.peer_is, |plan| connect(plan, from, name))?;
        let mut plan = actors.plan();
        let flags = libc::SOCK_NONBLOCK.cast_unsigned().into();
        plan.must("accept a connection", libc::SYS_accept4, [listener, 0, 0, flags]);
        plan.must("close a socket", libc::SYS_close, [listener]);
        Ok(first(&plan.run()?.results))
    })?;
    Ok(if accepted == 0 { [to, from] } else { [from, to] })
}

/// Connect a socket; whoever does so is where the name begins.
fn connect(plan: &mut Plan<'_>, socket: u64, name: &UnixName) {
    let address = names::address(name);
    let (at, bytes) = (plan.data(&address), address.len() as u64);
    plan.must("connect a socket", libc::SYS_connect, [socket, at, bytes]);
}

/// One that listens, and those that wait there.
fn listener(
    actors: &mut Actors<'_>,
    state: &State,
    socket: &Unix,
    backlog: u32,
    (waiting, made): (&[Option<usize>], &Made),
) -> Result<u64, Error> {
    let low = open(actors, socket.kind)?;
    let listen = |actors: &mut Actors<'_>| {
        actors.act(socket.peer_is.as_ref(), |plan| {
            plan.must("listen", libc::SYS_listen, [low, backlog.into()]);
        })?;
        let Some(name) = &socket.name else { return Ok(()) };
        for place in waiting {
            let Some(place) = place else {
                let from = open(actors, socket.kind)?;
                actors.act(None, |plan| {
                    connect(plan, from, name);
                    plan.must("close a socket", libc::SYS_close, [from]);
                })?;
                continue;
            };
            let (Some(client), Some(&from)) = (unix(state, *place), made.lows.get(place)) else {
                continue;
            };
            let UnixRole::Waits { by } = &client.role else { continue };
            actors.act(Some(by), |plan| connect(plan, from, name))?;
        }
        Ok(())
    };
    match &socket.name {
        Some(name) => bind_and(actors, low, name, listen)?,
        None => listen(actors)?,
    }
    Ok(low)
}

/// Connect the sockets of datagrams that are not yet.
pub(super) fn connect_datagrams(
    actors: &mut Actors<'_>,
    state: &State,
    made: &Made,
) -> Result<(), Error> {
    for (place, socket) in all(state).filter(|(_, socket)| socket.kind == UnixKind::Datagrams) {
        let Some(&low) = made.lows.get(&place) else { continue };
        match &socket.role {
            UnixRole::Connected { peer } => {
                let Some(other) = unix(state, *peer) else { continue };
                let Some(name) = made.reach(state, *peer) else { continue };
                if !is_pair(place, socket, *peer, other) {
                    names::where_it_begins(actors, name, |actors| {
                        actors.act(None, |plan| connect(plan, low, name)).map(drop)
                    })?;
                }
            }
            UnixRole::Left { name: Some(name), .. } => {
                let other = open(actors, socket.kind)?;
                bind_and(actors, other, name, |actors| {
                    actors.act(None, |plan| connect(plan, low, name)).map(drop)
                })?;
                actors.act(None, |plan| plan.must("close a socket", libc::SYS_close, [other]))?;
            }
            _ => {}
        }
    }
    Ok(())
}

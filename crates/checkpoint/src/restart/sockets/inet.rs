//! TCP and UDP sockets are made: those that listen first, then connections, which the kernel takes as they were while
//! they are in repair (`TCP_REPAIR`). When all are there they go on: what was never sent is sent, and ends are told.
//!
//! What is told by ends that are not in the image: see `left.rs` and `ended.rs`.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use host::processes::sockets::set_option;
use rustix::io::Errno;
use rustix::net::{Shutdown, connect, listen, shutdown};

use super::Sockets;
use super::actor::Actors;
use super::connections::{all, bind_to, go_on, open, put, repair, sent, wait_for};
use super::left::Left;
use super::packets::Packets;
use super::{datagrams, ended, groups, options};
use crate::error::Error;
use crate::state::State;
use crate::state::inet::{Connection, Inet, InetRole};

const TCP: i32 = libc::IPPROTO_TCP;
/// States of `struct tcp_info`.
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;

/// In which turn a socket is made: those that others lead to come first.
fn turn(role: &InetRole) -> usize {
    match role {
        InetRole::Idle | InetRole::Listens { .. } | InetRole::Datagrams { .. } => 0,
        InetRole::Waits { .. } => 1,
        InetRole::Connected(_) | InetRole::Ended { .. } => 2,
        InetRole::Connects { .. } => 3,
    }
}

/// Make all of them.
pub(super) fn make(
    actors: &mut Actors<'_>,
    state: &State,
    sockets: &mut Sockets,
) -> Result<(), Error> {
    let mut packets = Packets::default();
    let are_of_groups = datagrams::are_of_groups(state);
    let result = (0..4).try_for_each(|wanted| {
        for (place, inet) in all(state).filter(|(_, inet)| turn(&inet.role) == wanted) {
            let low = open(actors, inet)?;
            sockets.inet.insert(place, low);
            let socket = sockets.take(low)?;
            options::set(&socket, &state.sockets[place], false)?;
            match &inet.role {
                // Repair changes one of the options; they are set once more when it ends.
                InetRole::Connected(connection) => repair(&socket, inet, connection)?,
                InetRole::Ended { received } => {
                    let other = open(actors, inet)?;
                    sockets.ends.insert(place, other);
                    ended::make(&socket, &sockets.take(other)?, inet, received)?;
                }
                InetRole::Datagrams { queue, .. } => {
                    bind_to(&socket, inet)?;
                    let socket = (&socket, inet.name);
                    datagrams::fill(actors, sockets, &mut packets, socket, queue)?;
                    options::set(socket.0, &state.sockets[place], false)?;
                    if are_of_groups {
                        datagrams::hush(socket.0)?;
                    }
                }
                InetRole::Waits { .. } | InetRole::Connects { .. } => {
                    share_name(&socket, inet)?;
                    options::set(&socket, &state.sockets[place], false)?;
                }
                InetRole::Idle | InetRole::Listens { .. } => bind_to(&socket, inet)?,
            }
            begin(&socket, inet)?;
        }
        Ok(())
    });
    let closed = packets.close(actors);
    result.and(closed)
}

/// The same where others may have the name too, as clients may who have chosen none: repair does not mind them.
fn share_name(socket: &OwnedFd, inet: &Inet) -> Result<(), Error> {
    let on = set_option(socket, TCP, libc::TCP_REPAIR, &1_i32.to_ne_bytes());
    on.map_err(Error::io("give a TCP socket its name"))?;
    bind_to(socket, inet)?;
    go_on(socket)
}

/// Have it do what it did.
fn begin(socket: &OwnedFd, inet: &Inet) -> Result<(), Error> {
    match &inet.role {
        InetRole::Listens { backlog } => {
            listen(socket, i32::try_from(*backlog).unwrap_or(i32::MAX)).map_err(Error::io("listen"))
        }
        InetRole::Datagrams { peer: Some(peer), .. } => {
            connect(socket, peer).map_err(Error::io("connect a UDP socket"))
        }
        InetRole::Waits { peer } => {
            start(socket, peer)?;
            wait_for(socket, ESTABLISHED)
        }
        InetRole::Connects { peer } => start(socket, peer),
        _ => Ok(()),
    }
}

/// Begin to connect a socket.
fn start(socket: &OwnedFd, peer: &SocketAddr) -> Result<(), Error> {
    match connect(socket, peer) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
        Err(error) => Err(Error::io(format!("connect a TCP socket with {peer}"))(error)),
    }
}

/// Let the connections go on, and give all their options.
pub(super) fn complete(
    actors: &mut Actors<'_>,
    state: &State,
    sockets: &Sockets,
) -> Result<(), Error> {
    let mut connections = Vec::new();
    for (place, inet) in all(state) {
        if let InetRole::Connected(connection) = &inet.role {
            connections.push((place, inet, connection, sockets.take(sockets.low(place))?));
        }
    }
    let left = Left::find(actors, state, sockets)?;
    let are_of_groups = datagrams::are_of_groups(state);
    for (_, _, _, socket) in &connections {
        go_on(socket)?;
    }
    left.tell(actors, sockets)?;
    for (place, _, connection, socket) in &connections {
        options::set(socket, &state.sockets[*place], false)?;
        put(socket, sent(connection).1)?;
    }
    for is_last in [false, true] {
        let ended =
            |connection: &Connection| connection.has_sent_all && connection.ended_last == is_last;
        for (_, _, _, socket) in
            connections.iter().filter(|(_, _, connection, _)| ended(connection))
        {
            if is_last {
                // The other's end has arrived first, and so it does now.
                wait_for(socket, CLOSE_WAIT)?;
            }
            shutdown(socket, Shutdown::Write).map_err(Error::io("end a TCP connection"))?;
        }
    }
    for (place, other) in &sockets.ends {
        let socket = sockets.take(sockets.low(*place))?;
        ended::complete(&socket, &sockets.take(*other)?)?;
        options::set(&socket, &state.sockets[*place], false)?;
    }
    for (place, inet) in all(state) {
        let socket = sockets.take(sockets.low(place))?;
        if are_of_groups && matches!(inet.role, InetRole::Datagrams { .. }) {
            datagrams::listen_again(&socket)?;
        }
        groups::join_all(&socket, &inet.groups)?;
        options::set(&socket, &state.sockets[place], true)?;
    }
    Ok(())
}

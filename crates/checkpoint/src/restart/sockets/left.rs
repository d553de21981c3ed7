//! TCP connections that the other end has closed, where that end is not in the image: it was told once, and nobody
//! tells it again.
//!
//! An end that was here, and that nobody had any more, is made once more: it closes the connection, and is left to the
//! kernel again, which minds what may still be sent to it. An end that is elsewhere, or that is here and not of the
//! image, has told its end already: we say it in a packet that looks like its own.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use host::processes::sockets::set_option;
use rustix::net::{Shutdown, shutdown};

use super::Sockets;
use super::actor::Actors;
use super::connections::{all, go_on, open, repair, wait_for};
use super::packets::{End, Packets};
use crate::error::Error;
use crate::state::inet::{Connection, Inet, InetRole};
use crate::state::{Bytes, State};

/// A state of `struct tcp_info`.
const CLOSE_WAIT: u8 = 8;

/// Who tells an end.
enum Teller {
    /// The other end, in repair: the seed's descriptor, and ours.
    Here(u64, OwnedFd),
    /// A packet.
    Elsewhere,
}

/// The connections whose ends are to be told; all are in repair.
pub(super) struct Left<'a> {
    ends: Vec<(usize, SocketAddr, &'a Connection, Teller)>,
}

impl<'a> Left<'a> {
    /// Find them, and make the other ends that can be.
    pub fn find(
        actors: &mut Actors<'_>,
        state: &'a State,
        sockets: &Sockets,
    ) -> Result<Self, Error> {
        let (ending, mut ends) = (ending(state), Vec::new());
        for (place, inet) in all(state) {
            let InetRole::Connected(connection) = &inet.role else { continue };
            let Some(name) = inet.name.filter(|_| connection.has_received_all) else { continue };
            if !ending.contains(&(connection.peer, name)) {
                let teller = teller(actors, sockets, inet, name, connection)?;
                ends.push((place, name, &**connection, teller));
            }
        }
        Ok(Self { ends })
    }

    /// Have the ends told, of connections that are not in repair any more.
    pub fn tell(self, actors: &mut Actors<'_>, sockets: &Sockets) -> Result<(), Error> {
        let mut packets = Packets::default();
        let mut lows = Vec::new();
        let result = self.ends.into_iter().try_for_each(|(place, name, connection, teller)| {
            match teller {
                Teller::Here(low, other) => {
                    lows.push(low);
                    go_on(&other)?;
                    // As far as anybody knows it had: those that a server accepts have it from the one that listens.
                    let name = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
                    let reuse = set_option(&other, name.0, name.1, &1_i32.to_ne_bytes());
                    reuse.map_err(Error::io("share an address"))?;
                    shutdown(&other, Shutdown::Write).map_err(Error::io("end a connection"))?;
                }
                Teller::Elsewhere => {
                    packets.end(actors, sockets, (connection.peer, name), end(connection))?;
                }
            }
            wait_for(&sockets.take(sockets.low(place))?, CLOSE_WAIT)
        });
        let mut plan = actors.plan();
        for low in lows {
            plan.must("close a socket", libc::SYS_close, [low]);
            plan.flush_if_full()?;
        }
        plan.run()?;
        result.and(packets.close(actors))
    }
}

/// The connections of the image that have sent all, by the addresses of that end and of the other.
fn ending(state: &State) -> BTreeSet<(SocketAddr, SocketAddr)> {
    let ends = all(state).filter_map(|(_, inet)| match &inet.role {
        InetRole::Connected(connection) if connection.has_sent_all => {
            Some((inet.name?, connection.peer))
        }
        _ => None,
    });
    ends.collect()
}

/// Make the other end, if its address is one of ours and nobody has it.
fn teller(
    actors: &mut Actors<'_>,
    sockets: &Sockets,
    inet: &Inet,
    name: SocketAddr,
    connection: &Connection,
) -> Result<Teller, Error> {
    let (six, multipath, role) = (inet.six, false, InetRole::Idle);
    let end = Inet { six, multipath, name: Some(connection.peer), role, groups: Vec::new() };
    let low = open(actors, &end)?;
    let other = sockets.take(low)?;
    // It is refused where the address is none of ours, or the connection has its other end.
    if repair(&other, &end, &mirrored(name, connection)).is_ok() {
        return Ok(Teller::Here(low, other));
    }
    drop(other);
    let mut plan = actors.plan();
    plan.must("close a socket", libc::SYS_close, [low]);
    plan.run()?;
    Ok(Teller::Elsewhere)
}

/// The other end of a connection, to which all has arrived that was acknowledged.
fn mirrored(name: SocketAddr, connection: &Connection) -> Connection {
    let written = u32::try_from(connection.written.len()).unwrap_or(0);
    let receive_next = connection.write_next.wrapping_sub(written);
    let [_, send, most, ..] = connection.window;
    Connection {
        peer: name,
        received: Bytes::default(),
        receive_next,
        written: Bytes::default(),
        write_next: connection.receive_next,
        unsent: 0,
        window: [receive_next, send, most.max(send), send, receive_next],
        segment_bytes: connection.segment_bytes,
        scales: connection.scales.map(|(send, receive)| (receive, send)),
        selective: connection.selective,
        timestamp: None,
        has_sent_all: false,
        has_received_all: false,
        ended_last: false,
    }
}

/// The end of a connection as the other end has told it.
fn end(connection: &Connection) -> End {
    let written = u32::try_from(connection.written.len()).unwrap_or(0);
    let window = connection.window[1] >> connection.scales.map_or(0, |(send, _)| send);
    End {
        number: connection.receive_next,
        acknowledged: connection.write_next.wrapping_sub(written),
        window: u16::try_from(window).unwrap_or(u16::MAX),
    }
}

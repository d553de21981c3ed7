//! Datagrams of UDP that were not received: they arrive once more, each in a packet that names its sender.
//!
//! What is sent to a multicast group reaches all that hear it. So whoever has its datagrams hears nothing until all
//! have theirs (`hush`).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use host::processes::sockets::filter::set_filter;
use host::processes::sockets::{option, set_option};

use super::actor::Actors;
use super::packets::Packets;
use super::{Sockets, connections, options};
use crate::error::Error;
use crate::limits::SOCKET_PATIENCE;
use crate::state::State;
use crate::state::inet::{Datagram, Inet, InetRole};

/// `SO_MEMINFO`, and the places of what has arrived and of what was dropped in it.
const MEMORY: i32 = 55;
const MEMORY_BYTES: usize = 36;
const ARRIVED: usize = 0;
const DROPPED: usize = 8;
/// How often a socket is looked at.
const LOOK: Duration = Duration::from_micros(100);

/// Fill the queue of a socket that has its name, and is not connected yet.
pub(super) fn fill(
    actors: &mut Actors<'_>,
    sockets: &Sockets,
    packets: &mut Packets,
    (socket, name): (&OwnedFd, Option<SocketAddr>),
    queue: &[Datagram],
) -> Result<(), Error> {
    let Some(name) = name.filter(|_| !queue.is_empty()) else { return Ok(()) };
    options::make_room(socket)?;
    // They come by the loopback interface. Its own interface is given to it again with the other options.
    let any = set_option(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &[]);
    any.map_err(Error::io("let a UDP socket hear all interfaces"))?;
    for datagram in queue {
        let before = memory(socket)?;
        packets.datagram(actors, sockets, (datagram.from, name), &datagram.bytes)?;
        let deadline = Instant::now() + SOCKET_PATIENCE;
        loop {
            let now = memory(socket)?;
            if now[DROPPED] != before[DROPPED] || Instant::now() > deadline {
                let what = "a UDP socket does not take the datagrams again that it had";
                return Err(Error::Host(what.to_owned()));
            }
            if now[ARRIVED] > before[ARRIVED] {
                break;
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

/// Whether datagrams are to arrive once more that were sent to a group.
pub(super) fn are_of_groups(state: &State) -> bool {
    let is_of_group = |inet: &Inet| {
        inet.name.is_some_and(|name| name.ip().to_canonical().is_multicast())
            && matches!(&inet.role, InetRole::Datagrams { queue, .. } if !queue.is_empty())
    };
    connections::all(state).any(|(_, inet)| is_of_group(inet))
}

/// Have nothing arrive at a socket any more: a filter takes no byte of anything.
pub(super) fn hush(socket: &OwnedFd) -> Result<(), Error> {
    let [low, high] = (libc::BPF_RET as u16).to_ne_bytes();
    let done = set_filter(socket, &[low, high, 0, 0, 0, 0, 0, 0]);
    done.map_err(Error::io("keep a UDP socket from hearing others' datagrams"))
}

/// The opposite.
pub(super) fn listen_again(socket: &OwnedFd) -> Result<(), Error> {
    let done = set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &[0; 4]);
    done.map_err(Error::io("have a UDP socket hear datagrams again"))
}

/// What a socket holds.
fn memory(socket: &OwnedFd) -> Result<[u32; 9], Error> {
    let bytes = option(socket, libc::SOL_SOCKET, MEMORY, MEMORY_BYTES);
    let bytes = bytes.map_err(Error::io("ask what a socket holds"))?;
    let mut words = [0; 9];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    Ok(words)
}

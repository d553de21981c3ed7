//! Datagrams of UDP that were not received: they arrive once more, each in a packet that names its sender.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use host::processes::sockets::option;

use super::actor::Actors;
use super::packets::Packets;
use super::{Sockets, options};
use crate::error::Error;
use crate::limits::SOCKET_PATIENCE;
use crate::state::inet::Datagram;

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

//! All TCP connections: dispatches packets and events to them, and gives each a turn when its time
//! has come.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::ops::Range;

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use smoltcp::time::Instant;

use crate::addresses::Addresses;
use crate::cable::{Input, Output, Watch};
use crate::connection::Connection;
use crate::limits::{
    self, CONNECTION_BUFFER_BYTES, CONNECTIONS_AT_ONCE, MAX_CONNECTIONS, MAX_FULL_CONNECTIONS,
    SMALL_BUFFER_BYTES,
};
use crate::packets::Packet;

/// In a packet of TCP: the flag that opens a connection, and the one that answers.
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Ports of the gateway's, for connections that come from outside.
const PORTS: Range<u16> = 32768..65535;

/// The ends of a connection: the guest's, and the other.
type Ends = (SocketAddrV4, SocketAddrV4);

/// See above. The tokens of published ports are those from the first on, of connections from the second.
pub struct Connections {
    addresses: Addresses,
    mtu: usize,
    /// How many one guest may have.
    of_guest: usize,
    tokens: (u64, u64),
    next: u64,
    next_port: u16,
    published: Vec<(TcpListener, u16)>,
    all: HashMap<u64, Connection>,
    /// How many of them hold as much as one may.
    full: usize,
    by_ends: HashMap<Ends, u64>,
    /// Packets of this batch, and whose they are.
    batch: Vec<(u64, Range<usize>)>,
    /// The connections that are to have a turn now.
    ready: Vec<u64>,
    /// The connections that are to have one later.
    later: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Connections {
    pub fn new(
        addresses: Addresses,
        mtu: u16,
        published: Vec<(TcpListener, u16)>,
        tokens: (u64, u64),
        has_several: bool,
    ) -> Self {
        Self {
            addresses,
            mtu: mtu.into(),
            of_guest: limits::of_guest(MAX_CONNECTIONS, has_several),
            tokens,
            next: 0,
            next_port: PORTS.start,
            published,
            all: HashMap::new(),
            full: 0,
            by_ends: HashMap::new(),
            batch: Vec::new(),
            ready: Vec::new(),
            later: BinaryHeap::new(),
        }
    }

    pub fn watch(&self, watch: &Watch) -> io::Result<()> {
        for ((listener, _), token) in self.published.iter().zip(self.tokens.0..) {
            listener.set_nonblocking(true)?;
            watch.add(listener, token)?;
        }
        Ok(())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The guest has sent a packet; its connection has a turn later.
    pub fn take(
        &mut self,
        packet: &Packet<'_>,
        frame: Range<usize>,
        output: &mut Output,
        watch: &Watch,
        now: Instant,
    ) {
        let Some((there, here)) = packet.ends() else { return };
        let Some(flags) = packet.payload.get(13).copied() else { return };
        let known = self.by_ends.get(&(there, here)).copied();
        let token = match known {
            Some(token) => token,
            None if flags & (SYN | ACK | RST) != SYN => {
                if flags & RST == 0 {
                    refuse(packet, output);
                }
                return;
            }
            None => match self.open(here, there, watch, now) {
                Some(token) => token,
                None => return refuse(packet, output),
            },
        };
        self.batch.push((token, frame));
    }

    /// A connection that the guest opens.
    fn open(
        &mut self,
        here: SocketAddrV4,
        there: SocketAddrV4,
        watch: &Watch,
        now: Instant,
    ) -> Option<u64> {
        if self.all.len() >= MAX_CONNECTIONS || self.has_all_of_its_own(*there.ip()) {
            return None;
        }
        let outward = self.addresses.reach(here)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let host = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).ok()?;
        match connect(&host, &outward) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(_) => return None,
        }
        let host = TcpStream::from(host);
        let _ = host.set_nodelay(true);
        let connection = Connection::from_guest(here, there, host, self.sizes(), now)?;
        self.add(connection, watch)
    }

    /// Whether a guest has as many as one may.
    fn has_all_of_its_own(&self, guest: Ipv4Addr) -> bool {
        let its_own = || self.all.values().filter(|it| *it.there.ip() == guest).count();
        self.all.len() >= self.of_guest && its_own() >= self.of_guest
    }

    /// Bytes of a packet and of a buffer of the next connection.
    fn sizes(&self) -> (usize, usize) {
        let is_full = self.full < MAX_FULL_CONNECTIONS;
        (self.mtu, if is_full { CONNECTION_BUFFER_BYTES } else { SMALL_BUFFER_BYTES })
    }

    /// Bytes that all of them may come to hold.
    pub fn buffered_bytes_max(&self) -> usize {
        self.all.values().map(|connection| 2 * connection.buffer).sum()
    }

    fn add(&mut self, connection: Connection, watch: &Watch) -> Option<u64> {
        let token = self.tokens.1 + self.next;
        self.next += 1;
        watch.add(connection.host(), token).ok()?;
        self.by_ends.insert((connection.there, connection.here), token);
        self.full += usize::from(connection.buffer == CONNECTION_BUFFER_BYTES);
        self.all.insert(token, connection);
        Some(token)
    }

    /// Somebody has connected to a published port.
    pub fn accept(&mut self, token: u64, watch: &Watch, now: Instant) {
        let number = (token - self.tokens.0) as usize;
        for _ in 0..CONNECTIONS_AT_ONCE {
            let Some((listener, guest)) = self.published.get(number) else { return };
            let (host, guest) = match listener.accept() {
                Ok((host, _)) => (host, *guest),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It has gone again, or there is no descriptor for it.
                Err(_) => continue,
            };
            let there = SocketAddrV4::new(self.addresses.guest, guest);
            let is_full = self.all.len() >= MAX_CONNECTIONS;
            let Some(here) = self.free_end(there).filter(|_| !is_full) else { continue };
            let _ = (host.set_nonblocking(true), host.set_nodelay(true));
            let connection = Connection::to_guest(here, there, host, self.sizes(), now);
            if let Some(token) = connection.and_then(|connection| self.add(connection, watch)) {
                self.ready.push(token);
            }
        }
    }

    /// An end of the gateway's that does not speak to this one of the guest's.
    fn free_end(&mut self, there: SocketAddrV4) -> Option<SocketAddrV4> {
        for _ in PORTS {
            self.next_port =
                if self.next_port + 1 == PORTS.end { PORTS.start } else { self.next_port + 1 };
            let here = SocketAddrV4::new(self.addresses.gateway, self.next_port);
            if !self.by_ends.contains_key(&(there, here)) {
                return Some(here);
            }
        }
        None
    }

    /// The host's socket of a connection is ready for this.
    pub fn note_ready(&mut self, token: u64, readable: bool, writable: bool) {
        if let Some(connection) = self.all.get_mut(&token) {
            connection.can_read |= readable;
            connection.can_write |= writable;
            self.ready.push(token);
        }
    }

    /// Those have a turn that have something to do.
    pub fn turn(&mut self, input: &Input, output: &mut Output, now: Instant) {
        while let Some(Reverse((at, token))) = self.later.peek().copied().filter(|r| r.0.0 <= now) {
            let _ = at;
            self.later.pop();
            self.ready.push(token);
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.extend(self.ready.drain(..).map(|token| (token, 0..0)));
        batch.sort_by_key(|(token, _)| *token);
        let mut frames: Vec<Range<usize>> = Vec::new();
        for of_one in batch.chunk_by(|one, other| one.0 == other.0) {
            frames.clear();
            frames.extend(of_one.iter().map(|(_, frame)| frame.clone()).filter(|f| !f.is_empty()));
            let token = of_one[0].0;
            let Some(connection) = self.all.get_mut(&token) else { continue };
            let look_again = connection.turn(input, &frames, output, now);
            if connection.is_over() {
                self.by_ends.remove(&(connection.there, connection.here));
                self.full -= usize::from(connection.buffer == CONNECTION_BUFFER_BYTES);
                self.all.remove(&token);
            } else if !output.has_room() {
                // When there is room again, it has another turn.
                self.later.push(Reverse((now, token)));
            } else if let Some(at) = look_again {
                self.later.push(Reverse((at, token)));
            }
        }
        batch.clear();
        self.batch = batch;
    }

    /// When the next connection is to have a turn.
    pub fn deadline(&self) -> Option<Instant> {
        self.later.peek().map(|next| next.0.0)
    }
}

/// Reset what is no connection (RFC 9293, 3.10.7.1).
fn refuse(packet: &Packet<'_>, output: &mut Output) {
    let Some(header) = packet.payload.first_chunk::<20>() else { return };
    let data = packet.payload.len().saturating_sub(usize::from(header[12] >> 4) * 4);
    let opening = u32::from(header[13] & SYN != 0) + u32::from(header[13] & 1);
    let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let mut answer = [0; 20];
    answer[0..2].copy_from_slice(&header[2..4]);
    answer[2..4].copy_from_slice(&header[0..2]);
    if header[13] & ACK != 0 {
        answer[4..8].copy_from_slice(&header[8..12]);
        answer[13] = RST;
    } else {
        let next = sequence.wrapping_add(data as u32).wrapping_add(opening);
        answer[8..12].copy_from_slice(&next.to_be_bytes());
        answer[13] = RST | ACK;
    }
    answer[12] = 5 << 4;
    let (from, to): (Ipv4Addr, Ipv4Addr) = (packet.to, packet.from);
    crate::packets::add_segment(output, from, to, &answer);
}

//! UDP: each port of the guest's that sends has a socket of the host, and so has each published
//! port.
//!
//! A datagram that comes to the first kind is forwarded if the guest has sent something to its
//! source. A sender to the second kind appears to the guest as the gateway, with a port of its own.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Instant;

use crate::addresses::Addresses;
use crate::cable::{Output, Watch};
use crate::limits::{self, DATAGRAMS_AT_ONCE, IDLE_TIMEOUT, MAX_ASSOCIATIONS, MAX_PEERS};
use crate::packets::{Packet, add_datagram, add_prohibited};

/// A socket for one of the guest's ports.
struct Association {
    socket: UdpSocket,
    guest: SocketAddrV4,
    peers: HashSet<Ipv4Addr>,
    /// It asks for names: what comes from the resolver comes from the name server.
    asks_names: bool,
    used: Instant,
}

/// A published port.
struct Published {
    socket: UdpSocket,
    guest: u16,
    /// Who has sent, and as which port of the gateway's the guest knows them.
    peers: HashMap<SocketAddr, u16>,
}

/// All of them. The tokens of published ports are those from the first on, of others from the second.
pub struct Datagrams {
    addresses: Addresses,
    /// How many associations one guest may have.
    of_guest: usize,
    tokens: (u64, u64),
    next: u64,
    published: Vec<Published>,
    /// By the gateway's port: who that is, and of which published port.
    peers: HashMap<u16, (usize, SocketAddr, Instant)>,
    associations: HashMap<u64, Association>,
    by_port: HashMap<SocketAddrV4, u64>,
    buffer: Box<[u8]>,
}

impl Datagrams {
    pub fn new(
        addresses: Addresses,
        published: Vec<(UdpSocket, u16)>,
        tokens: (u64, u64),
        has_several: bool,
    ) -> Self {
        let published = published.into_iter().map(|(socket, guest)| Published {
            socket,
            guest,
            peers: HashMap::new(),
        });
        Self {
            addresses,
            of_guest: limits::of_guest(MAX_ASSOCIATIONS, has_several),
            tokens,
            next: 0,
            published: published.collect(),
            peers: HashMap::new(),
            associations: HashMap::new(),
            by_port: HashMap::new(),
            buffer: vec![0; 1 << 16].into(),
        }
    }

    pub fn watch(&self, watch: &Watch) -> io::Result<()> {
        for (published, token) in self.published.iter().zip(self.tokens.0..) {
            published.socket.set_nonblocking(true)?;
            watch.add(&published.socket, token)?;
        }
        Ok(())
    }

    /// The guest sends; it is told what it may not reach.
    pub fn send(&mut self, packet: &Packet<'_>, output: &mut Output, watch: &Watch) {
        let (Some((from, to)), Some(bytes)) = (packet.ends(), packet.datagram()) else { return };
        if *to.ip() == self.addresses.gateway
            && let Some((published, peer, used)) = self.peers.get_mut(&to.port())
            && self.published[*published].guest == from.port()
        {
            *used = Instant::now();
            // What cannot be sent is lost, as datagrams are.
            let _ = self.published[*published].socket.send_to(bytes, *peer);
            return;
        }
        let outward = match self.known_peer(from, to) {
            true => Some(to),
            false => self.addresses.reach(to),
        };
        let Some(outward) = outward else {
            if self.addresses.is_one(*to.ip()) {
                add_prohibited(output, packet, self.addresses.gateway);
            }
            return;
        };
        let asks_names = *to.ip() == self.addresses.nameserver;
        let Some(association) = self.association(from, watch) else { return };
        association.used = Instant::now();
        if association.peers.len() < MAX_PEERS {
            association.peers.insert(*outward.ip());
        }
        association.asks_names = asks_names;
        let _ = association.socket.send_to(bytes, outward);
    }

    /// Whether that port of the guest's has sent there before, so that it need not be judged again.
    fn known_peer(&self, from: SocketAddrV4, to: SocketAddrV4) -> bool {
        let token = self.by_port.get(&from);
        let association = token.and_then(|token| self.associations.get(token));
        let is_peer = association.is_some_and(|it| it.peers.contains(to.ip()));
        // The resolver may be a peer as the name server, whatever the guest may send to it as itself.
        let is_resolver = self.addresses.resolver.is_some_and(|resolver| resolver.ip() == to.ip());
        is_peer && !is_resolver && self.addresses.outward(to) == Some(to)
    }

    fn association(&mut self, from: SocketAddrV4, watch: &Watch) -> Option<&mut Association> {
        let token = match self.by_port.get(&from) {
            Some(token) => *token,
            None => {
                let count = self.associations.len();
                let of_it = |it: &&Association| it.guest.ip() == from.ip();
                let its_own = || self.associations.values().filter(of_it).count();
                let has_its_own = count >= self.of_guest && its_own() >= self.of_guest;
                if count >= MAX_ASSOCIATIONS || has_its_own {
                    return None;
                }
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
                socket.set_nonblocking(true).ok()?;
                let token = self.tokens.1 + self.next;
                self.next += 1;
                watch.add(&socket, token).ok()?;
                let (peers, used) = (HashSet::new(), Instant::now());
                let new = Association { socket, guest: from, peers, asks_names: false, used };
                self.associations.insert(token, new);
                self.by_port.insert(from, token);
                token
            }
        };
        self.associations.get_mut(&token)
    }

    /// A socket has something; whether it has more than it gave now.
    pub fn receive(&mut self, token: u64, output: &mut Output) -> bool {
        for _ in 0..DATAGRAMS_AT_ONCE {
            let received = match token < self.tokens.1 {
                true => self.receive_published((token - self.tokens.0) as usize, output),
                false => self.receive_answer(token, output),
            };
            if received.is_none() {
                return false;
            }
        }
        true
    }

    fn receive_answer(&mut self, token: u64, output: &mut Output) -> Option<()> {
        let association = self.associations.get_mut(&token)?;
        let (count, from) = receive(&association.socket, &mut self.buffer)?;
        // Its socket is one of IPv4.
        let SocketAddr::V4(from) = from else { return Some(()) };
        if !association.peers.contains(from.ip()) {
            return Some(());
        }
        association.used = Instant::now();
        let shown = match from {
            from if association.asks_names && self.addresses.resolver == Some(from) => {
                SocketAddrV4::new(self.addresses.nameserver, from.port())
            }
            from if Some(*from.ip()) == self.addresses.host => {
                SocketAddrV4::new(self.addresses.gateway, from.port())
            }
            from => from,
        };
        add_datagram(output, shown, association.guest, &self.buffer[..count]);
        Some(())
    }

    fn receive_published(&mut self, number: usize, output: &mut Output) -> Option<()> {
        let published = self.published.get_mut(number)?;
        let (count, from) = receive(&published.socket, &mut self.buffer)?;
        let port = match published.peers.get(&from) {
            Some(port) => *port,
            None if self.peers.len() >= MAX_ASSOCIATIONS => return Some(()),
            None => {
                let free = (32768..=u16::MAX).find(|port| !self.peers.contains_key(port))?;
                published.peers.insert(from, free);
                free
            }
        };
        self.peers.insert(port, (number, from, Instant::now()));
        let to = SocketAddrV4::new(self.addresses.guest, published.guest);
        let shown = SocketAddrV4::new(self.addresses.gateway, port);
        add_datagram(output, shown, to, &self.buffer[..count]);
        Some(())
    }

    /// Forget what has not been used for long.
    pub fn sweep(&mut self, now: Instant) {
        let is_fresh = |used: Instant| now.saturating_duration_since(used) < IDLE_TIMEOUT;
        self.associations.retain(|_, association| is_fresh(association.used));
        self.by_port.retain(|_, token| self.associations.contains_key(token));
        self.peers.retain(|_, (_, _, used)| is_fresh(*used));
        for published in &mut self.published {
            published.peers.retain(|_, port| self.peers.contains_key(port));
        }
    }
}

/// A datagram; `None` if there is none. Those that failed on their way out are no matter.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    for _ in 0..DATAGRAMS_AT_ONCE {
        match socket.recv_from(buffer) {
            Ok(received) => return Some(received),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            _ => {}
        }
    }
    None
}

//! The loop: dispatches frames from the machine, and events of sockets.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};
use smoltcp::time::Instant as Moment;

use crate::addresses::Addresses;
use crate::cable::{Cable, Input, Line, Output, Watch};
use crate::connections::Connections;
use crate::echo::Echoes;
use crate::limits::{FRAMES_AT_ONCE, SWEEP_INTERVAL};
use crate::names::Names;
use crate::neighbours::{self, Neighbours, Way};
use crate::packets::{Packet, add_datagram};
use crate::udp::Datagrams;
use crate::wire::{ETHERNET_BYTES, IPV4, protocol};
use crate::{arp, dhcp};

/// Our Ethernet address: the gateway's, and everybody's behind it.
pub const OURS: [u8; 6] = [0x52, 0x55, 0x0a, 0x00, 0x02, 0x02];

/// The destination of what is for one of several guests: nobody's address, so that who is between us and them goes by
/// that of IP.
const SOMEBODY: [u8; 6] = [0x52, 0x55, 0x0a, 0x00, 0x02, 0xff];

/// Tokens of events: whose they are.
const CABLE: u64 = 0;
const LISTENERS: u64 = 1;
const LINE: u64 = u64::MAX;
const NAMES: u64 = u64::MAX - 1;
const NEIGHBOURS: u64 = u64::MAX - 2;
const BELL: u64 = u64::MAX - 3;
const PUBLISHED_UDP: u64 = 1 << 32;
const ASSOCIATIONS: u64 = 2 << 32;
const ECHOES: u64 = 1 << 48;
const CONNECTIONS: u64 = 1 << 56;

/// What a network is made from.
pub struct Plan {
    /// The addresses of guest, gateway and name server.
    pub addresses: Addresses,
    /// The greatest packet.
    pub mtu: u16,
    /// The guest's Ethernet address; `None` if there are several guests, whom a router at the cable's other end tells
    /// apart by their addresses of IP. They have these already, and no port leads to them.
    pub card: Option<[u8; 6]>,
    /// Published ports: the host's, which listens, and the guest's.
    pub tcp: Vec<(TcpListener, u16)>,
    /// The same of UDP.
    pub udp: Vec<(UdpSocket, u16)>,
    /// Where it is told who the guest's neighbours are, whose names it may ask for.
    pub names: Option<OwnedFd>,
}

/// A network.
pub struct Server {
    cable: Cable,
    watch: Watch,
    input: Input,
    output: Output,
    addresses: Addresses,
    mtu: u16,
    /// There are several guests.
    has_several: bool,
    connections: Connections,
    datagrams: Datagrams,
    echoes: Echoes,
    names: Names,
    /// Who has frames of their own on the cable.
    neighbours: Option<Neighbours>,
    started: Instant,
    swept: Instant,
    /// The cable may have more; and sockets of datagrams that do.
    cable_is_ready: bool,
    more_datagrams: Vec<u64>,
    /// The machine has not taken what is there.
    is_blocked: bool,
    /// Nothing is received from the guest or sent to it.
    is_paused: bool,
    /// The line has ended, and so does the network, with what has come already.
    is_over: bool,
}

impl Server {
    /// A network at the other end of `cable`.
    ///
    /// # Errors
    ///
    /// The host has no descriptors.
    pub fn new(cable: Cable, plan: Plan) -> io::Result<Self> {
        let watch = Watch::new()?;
        watch.add(&cable, CABLE)?;
        if let Cable::Interface { line, .. } = &cable {
            watch.add(line, LINE)?;
        }
        let Plan { addresses, mtu, card, tcp, udp, names } = plan;
        let names = Names::new(names);
        if let Some(names) = names.watched() {
            watch.add(names, NAMES)?;
        }
        let has_several = card.is_none();
        let tokens = (LISTENERS, CONNECTIONS);
        let connections = Connections::new(addresses, mtu, tcp, tokens, has_several);
        connections.watch(&watch)?;
        let datagrams = Datagrams::new(addresses, udp, (PUBLISHED_UDP, ASSOCIATIONS), has_several);
        datagrams.watch(&watch)?;
        let now = Instant::now();
        Ok(Self {
            cable,
            watch,
            input: Input::default(),
            output: Output::new(card.unwrap_or(SOMEBODY), OURS),
            has_several,
            addresses,
            mtu,
            connections,
            datagrams,
            echoes: Echoes::new(ECHOES, has_several),
            names,
            neighbours: None,
            started: now,
            swept: now,
            cable_is_ready: true,
            more_datagrams: Vec::new(),
            is_blocked: false,
            is_paused: false,
            is_over: false,
        })
    }

    /// Lead to the machine's neighbours as well, with this way.
    ///
    /// # Errors
    ///
    /// The host has no descriptors.
    pub fn with_neighbours(mut self, way: Way) -> io::Result<Self> {
        let neighbours = Neighbours::new(way);
        self.watch.add(neighbours.bell(), BELL)?;
        self.neighbours = Some(neighbours);
        self.watch_neighbours()?;
        Ok(self)
    }

    fn watch_neighbours(&self) -> io::Result<()> {
        let frames = self.neighbours.as_ref().and_then(Neighbours::frames);
        frames.map_or(Ok(()), |frames| self.watch.add(frames, NEIGHBOURS))
    }

    /// Serve until the machine has gone.
    ///
    /// # Errors
    ///
    /// The cable, or epoll, fails.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(256);
        loop {
            self.wait(&mut events)?;
            for event in &events {
                self.note(event);
            }
            if !self.step()? {
                return Ok(());
            }
        }
    }

    /// Wait for events, if there is nothing else to do.
    fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let patience = self.patience();
        let patience = Timespec::try_from(patience).unwrap_or_default();
        events.clear();
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(self.watch.poll(), room, Some(&patience)) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    fn patience(&self) -> Duration {
        if self.is_blocked || self.is_paused {
            return SWEEP_INTERVAL;
        }
        let has_frames = self.neighbours.as_ref().is_some_and(|them| them.is_ready);
        if self.cable_is_ready || has_frames || !self.more_datagrams.is_empty() {
            return Duration::ZERO;
        }
        let now = self.moment();
        let until = self
            .connections
            .deadline()
            .map(|at| if at > now { at - now } else { Default::default() });
        until
            .map_or(SWEEP_INTERVAL, |until| Duration::from_micros(until.total_micros()))
            .min(SWEEP_INTERVAL)
    }

    fn note(&mut self, event: &Event) {
        let (flags, token) = (event.flags, event.data.u64());
        let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        let readable = broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        let writable = broken || flags.contains(EventFlags::OUT);
        match token {
            CABLE => {
                self.cable_is_ready |= readable;
                self.is_blocked &= !writable;
            }
            LINE if readable => self.hear_line(),
            LINE => {}
            NAMES if readable => self.names.hear(),
            NAMES => {}
            NEIGHBOURS => self.note_neighbours(readable, broken),
            BELL if readable => self.hear_bell(),
            BELL => {}
            CONNECTIONS.. => self.connections.note_ready(token, readable, writable),
            ECHOES.. if readable => self.echoes.receive(token, &mut self.output),
            PUBLISHED_UDP.. if readable => self.more_datagrams.push(token),
            LISTENERS.. if readable => {
                let now = self.moment();
                self.connections.accept(token, &self.watch, now);
            }
            _ => {}
        }
    }

    /// Neighbours have something to say, or nobody is there any more.
    fn note_neighbours(&mut self, readable: bool, broken: bool) {
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.is_ready |= readable && neighbours.frames().is_some();
            if broken {
                neighbours.lose();
            }
        }
    }

    /// There is another switch.
    fn hear_bell(&mut self) {
        let Some(names) = self.neighbours.as_mut().and_then(Neighbours::hear_bell) else { return };
        self.names = Names::new(Some(names));
        let watched = self.names.watched().map_or(Ok(()), |names| self.watch.add(names, NAMES));
        if watched.and_then(|()| self.watch_neighbours()).is_err() {
            self.neighbours.iter_mut().for_each(Neighbours::lose);
        }
    }

    /// The other end of the line says something.
    fn hear_line(&mut self) {
        loop {
            match self.cable.hear_line() {
                Ok(Some(word)) => {
                    self.is_paused = word == Line::Pause;
                    // There may have come something meanwhile.
                    self.cable_is_ready = true;
                    if self.is_paused {
                        self.cable.answer_line(word);
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    self.is_over = true;
                    return;
                }
            }
        }
    }

    /// Do what there is to do; false when the machine or the pod has gone.
    fn step(&mut self) -> io::Result<bool> {
        if self.is_paused {
            return Ok(!self.is_over);
        }
        if !self.is_blocked {
            if self.cable_is_ready {
                match self.input.receive(&self.cable) {
                    Ok(Some(0)) | Err(_) => return Ok(false),
                    Ok(None) => self.cable_is_ready = false,
                    Ok(Some(_)) => {}
                }
            }
            for token in std::mem::take(&mut self.more_datagrams) {
                if self.datagrams.receive(token, &mut self.output) {
                    self.more_datagrams.push(token);
                }
            }
            if let Some(neighbours) = self.neighbours.as_mut().filter(|them| them.is_ready) {
                neighbours::receive(neighbours, &mut self.output, FRAMES_AT_ONCE);
            }
            if !self.take_frames() {
                return Ok(false);
            }
        }
        match self.output.flush(&self.cable) {
            Ok(all) => self.is_blocked = !all,
            Err(_) => return Ok(false),
        }
        let now = Instant::now();
        if now.saturating_duration_since(self.swept) >= SWEEP_INTERVAL {
            self.swept = now;
            self.datagrams.sweep(now);
            self.echoes.sweep(now);
        }
        Ok(!self.is_over)
    }

    /// Look at all frames that have come, and give connections their turns; false if they are none.
    fn take_frames(&mut self) -> bool {
        loop {
            match self.input.next_frame() {
                Ok(Some(range)) => self.take_frame(range),
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        let now = self.moment();
        self.connections.turn(&self.input, &mut self.output, now);
        true
    }

    fn take_frame(&mut self, range: Range<usize>) {
        let now = self.moment();
        let frame = self.input.frame(range.clone());
        let Some(header) = frame.first_chunk::<ETHERNET_BYTES>() else { return };
        if let Some(neighbours) = &mut self.neighbours
            && !neighbours::is_ours(frame, OURS, &self.addresses)
        {
            return neighbours.send(frame);
        }
        let (kind, source) = ([header[12], header[13]], header[6..12].first_chunk::<6>());
        if kind == arp::KIND {
            // Who asks is answered, even among several.
            let theirs = source.map(|source| std::mem::replace(&mut self.output.theirs, *source));
            arp::answer(frame, OURS, &self.addresses, &mut self.output);
            self.output.theirs = theirs.filter(|_| self.has_several).unwrap_or(self.output.theirs);
            return;
        }
        if let Some(source) = source.filter(|_| !self.has_several) {
            self.output.theirs = *source;
        }
        let packet = (kind == IPV4).then(|| Packet::parse(&frame[ETHERNET_BYTES..])).flatten();
        let Some(packet) = packet else { return };
        match packet.protocol {
            protocol::TCP => {
                self.connections.take(&packet, range, &mut self.output, &self.watch, now);
            }
            protocol::UDP => {
                let (Some((from, to)), Some(bytes)) = (packet.ends(), packet.datagram()) else {
                    return;
                };
                let is_question = self.addresses.is_nameserver(to);
                if let Some(answer) = is_question.then(|| self.names.answer(bytes)).flatten() {
                    return add_datagram(&mut self.output, to, from, &answer);
                }
                if to.port() == dhcp::SERVER_PORT {
                    if self.has_several {
                        return;
                    }
                    dhcp::answer(bytes, &self.addresses, self.mtu, &mut self.output);
                } else {
                    self.datagrams.send(&packet, &mut self.output, &self.watch);
                }
            }
            protocol::ICMP => {
                self.echoes.ask(&packet, &self.addresses, &mut self.output, &self.watch);
            }
            _ => {}
        }
    }

    fn moment(&self) -> Moment {
        Moment::from_micros(self.started.elapsed().as_micros() as i64)
    }

    /// As if this had come through the cable, for tests and fuzzing: what is said to it.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.input.feed(bytes);
        self.take_frames();
        let said = self.output.waiting().to_vec();
        self.output.clear();
        said
    }

    /// See what sockets are ready, without waiting, as [`Self::run`] does.
    pub fn look(&mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(256);
        self.cable_is_ready = true;
        if self.wait(&mut events).is_ok() {
            events.iter().for_each(|event| self.note(event));
        }
        self.feed(&[]);
    }

    /// Bytes that all connections of TCP may come to hold.
    #[must_use]
    pub fn buffered_bytes_max(&self) -> usize {
        self.connections.buffered_bytes_max()
    }

    /// Connections of TCP that there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.count()
    }
}

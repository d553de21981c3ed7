//! The loop: turns of ports, and what keepers want.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use host::poll::{PollFlags, Poller};
use host::rights::receive;
use router::limits::HEAD_BYTES;
use router::{Destination, Frame, Interface, Mac, Next, PortId, Router, Time};
use rustix::io::Errno;
use rustix::net::{RecvFlags, ReturnFlags, SendFlags, SocketFlags, accept_with, send};
use rustix::process::{Uid, geteuid};

use crate::card_of;
use crate::limits::{
    ALL_HELD_BYTES, CLIENTS_MAX, FILES_MAX, FIRST_TIMEOUT, FRAME_BYTES, HEADER_BYTES,
    LONELY_TIMEOUT, NAME_BYTES, PORTS_MAX, REQUEST_BYTES, TURNS_AT_ONCE,
};
use crate::port::{Port, Received, announcement, time_of};
use crate::wire::{Attach, Reply, Request};

/// A switch that runs.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    owner: Uid,
    router: Router,
    ports: BTreeMap<PortId, Port>,
    /// The pods of the switch that this one is joined to.
    beyond: Vec<Attach>,
    /// Those who are connected, by their numbers.
    clients: BTreeMap<u64, OwnedFd>,
    next_client: u64,
    gateway: Ipv4Addr,
    bits: u8,
    started: Instant,
    /// Until when it waits for somebody to connect, if nobody is.
    lonely: Option<Instant>,
    frame: Box<[u8]>,
    /// The destinations of a frame.
    destinations: Vec<Destination>,
}

/// What is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Listener,
    Client(u64),
    Port(PortId),
}

/// Word of a client.
enum Word {
    Nothing,
    Request(Request, Vec<OwnedFd>),
    Wrong(String),
    Gone,
}

impl Server {
    /// A switch to which nobody is attached, of the network with this gateway.
    ///
    /// # Errors
    ///
    /// The network's prefix is too long or too short.
    pub fn new(listener: OwnedFd, gateway: Ipv4Addr, bits: u8) -> io::Result<Self> {
        if !(16..=30).contains(&bits) {
            let reason = "the prefix of a network has 16 to 30 bits";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let started = Instant::now();
        Ok(Self {
            listener,
            owner: geteuid(),
            router: Router::new(),
            ports: BTreeMap::new(),
            beyond: Vec::new(),
            clients: BTreeMap::new(),
            next_client: 0,
            gateway,
            bits,
            started,
            lonely: started.checked_add(FIRST_TIMEOUT),
            frame: vec![0; FRAME_BYTES].into(),
            destinations: Vec::new(),
        })
    }

    /// Serves until nobody has been connected for a while.
    ///
    /// # Errors
    ///
    /// The host does not let it wait.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            let has_more = self.take_turns();
            if !self.look(has_more)? {
                return Ok(());
            }
        }
    }

    fn now(&self) -> Time {
        time_of(self.started.elapsed())
    }

    /// Serves some turns; whether there are more.
    fn take_turns(&mut self) -> bool {
        for _ in 0..TURNS_AT_ONCE {
            // No port has a rate: nobody waits.
            let Next::Turn(mut turn) = self.router.next_turn(self.now()) else { return false };
            let id = turn.port();
            let mut frame = std::mem::take(&mut self.frame);
            let mut has_more = true;
            while turn.has_room() && has_more {
                let port = self.ports.get_mut(&id);
                match port.map_or(Received::Nothing, |port| port.receive(&mut frame)) {
                    Received::Frame(count) => self.pass(&mut turn, &mut frame[..count]),
                    // Its next frame says that there is more.
                    Received::Nonsense | Received::Nothing => has_more = false,
                }
            }
            self.frame = frame;
            if let Some(port) = self.ports.get_mut(&id) {
                port.is_announced = has_more;
            }
            self.router.end_turn(turn, has_more);
        }
        true
    }

    /// Passes a frame, with its header, to those whom it is for.
    fn pass(&mut self, turn: &mut router::Turn, frame: &mut [u8]) {
        let (now, bytes) = (self.now(), frame.len() - HEADER_BYTES);
        let head = &frame[HEADER_BYTES..][..bytes.min(HEAD_BYTES)];
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let decision = self.router.submit(turn, &Frame { head, bytes }, now);
        self.destinations.clear();
        self.destinations.extend(decision.destinations);
        let has_room = self.has_room();
        for Destination { port, mac } in &self.destinations {
            if let Some(Mac(mac)) = mac {
                frame[HEADER_BYTES..HEADER_BYTES + 6].copy_from_slice(mac);
            }
            if !self.ports.get_mut(port).is_some_and(|port| port.send(frame, has_room)) {
                self.router.undelivered(*port, bytes);
            }
        }
    }

    /// Whether more may be held for anybody.
    fn has_room(&self) -> bool {
        self.ports.values().map(Port::held_bytes).sum::<usize>() < ALL_HELD_BYTES
    }

    /// Waits until something can be done, and does what keepers want; false when nobody has been here for long.
    fn look(&mut self, has_more: bool) -> io::Result<bool> {
        let deadline = match self.lonely {
            _ if has_more => Some(self.started),
            until => until,
        };
        let mut poller = Poller::new();
        if self.clients.len() < CLIENTS_MAX {
            poller.register(Token::Listener, self.listener.as_fd(), PollFlags::IN);
        }
        for (number, client) in &self.clients {
            poller.register(Token::Client(*number), client.as_fd(), PollFlags::IN);
        }
        // Whoever is away is not heard.
        let heard = |port: &Port| !port.is_announced && !port.is_away();
        for (id, port) in self.ports.iter().filter(|(_, port)| heard(port)) {
            poller.register(Token::Port(*id), port.as_fd(), PollFlags::IN);
        }
        poller.wait(deadline)?;
        let ready: Vec<Token> = poller.ready().map(|(token, _)| token).collect();
        for token in ready {
            match token {
                Token::Listener => self.accept(),
                Token::Client(client) => self.hear(client),
                Token::Port(id) => self.announce(id),
            }
        }
        match (self.clients.is_empty(), self.lonely) {
            (false, _) => self.lonely = None,
            (true, None) => self.lonely = Instant::now().checked_add(LONELY_TIMEOUT),
            (true, Some(until)) => return Ok(Instant::now() < until),
        }
        Ok(true)
    }

    fn announce(&mut self, id: PortId) {
        if let Some(port) = self.ports.get_mut(&id) {
            port.is_announced = true;
            self.router.announce(id);
        }
    }

    /// Somebody has connected: only this user and root may.
    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(&self.listener, flags) else { return };
        if host::peer::is_of(&socket, self.owner) {
            self.clients.insert(self.next_client, socket);
            self.next_client += 1;
        }
    }

    /// A client says something.
    fn hear(&mut self, number: u64) {
        let reply = match self.word(number) {
            Word::Nothing => return,
            Word::Gone => return self.forget(number),
            Word::Wrong(reason) => Reply::Refused(reason),
            Word::Request(Request::Attach(attach), files) => {
                self.attach(number, attach, files).map_or_else(Reply::Refused, |()| Reply::Done)
            }
            Word::Request(Request::Join, files) => {
                self.join(number, files).map_or_else(Reply::Refused, |()| Reply::Done)
            }
            Word::Request(Request::Beyond(pods), _) => {
                self.note_beyond(number, pods).map_or_else(Reply::Refused, |()| Reply::Done)
            }
            Word::Request(Request::HoldBeginnings, _) => self
                .change(number, Port::hold_beginnings)
                .map_or_else(Reply::Refused, |()| Reply::Done),
            Word::Request(Request::Hold, _) => {
                self.change(number, Port::hold).map_or_else(Reply::Refused, |()| Reply::Done)
            }
            Word::Request(Request::Release, _) => {
                return self.port_of(number).into_iter().for_each(Port::release);
            }
        };
        let text = serde_json::to_vec(&reply).unwrap_or_default();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // Who does not take its answer is not waited for.
        if self.clients.get(&number).is_none_or(|client| send(client, &text, flags).is_err()) {
            self.forget(number);
        }
    }

    /// Does something to the port of a connection.
    fn change(&mut self, number: u64, change: fn(&mut Port)) -> Result<(), String> {
        self.port_of(number)
            .map(change)
            .ok_or_else(|| "there is no pod of this connection".to_owned())
    }

    fn word(&self, number: u64) -> Word {
        let Some(client) = self.clients.get(&number) else { return Word::Nothing };
        let mut bytes = vec![0; REQUEST_BYTES];
        match receive(client, &mut bytes, FILES_MAX, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Word::Nothing,
            Ok(received) if received.flags.contains(ReturnFlags::TRUNC) => {
                Word::Wrong("the request is too long".to_owned())
            }
            Ok(received) if received.bytes > 0 => {
                match serde_json::from_slice(&bytes[..received.bytes]) {
                    Ok(request) => Word::Request(request, received.files),
                    Err(error) => Word::Wrong(error.to_string()),
                }
            }
            Ok(_) | Err(_) => Word::Gone,
        }
    }

    /// A client's port, if it has one.
    fn port_of(&mut self, client: u64) -> Option<&mut Port> {
        self.ports.values_mut().find(|port| port.client == client)
    }

    /// A client has gone, and so has its pod.
    fn forget(&mut self, client: u64) {
        self.clients.remove(&client);
        let id = self.ports.iter().find(|(_, port)| port.client == client).map(|(id, _)| *id);
        if let Some(id) = id {
            self.leave(id);
            if id == PortId::Uplink {
                self.beyond.clear();
            }
            self.tell_names();
        }
    }

    fn leave(&mut self, id: PortId) -> Option<Port> {
        let port = self.ports.remove(&id)?;
        tracing::info!("{} has gone", port.name);
        // It was there.
        let _ = self.router.remove(id);
        Some(port)
    }

    /// Attaches a client's pod.
    fn attach(&mut self, client: u64, pod: Attach, files: Vec<OwnedFd>) -> Result<(), String> {
        let Attach { name, address, lease } = pod;
        check_words(&name, &lease)?;
        let [frames, names] = two(files)?;
        let id = self.number_of(address)?;
        let is_other = |pod: &&Attach| pod.address == address && pod.lease != lease;
        if let Some(other) = self.beyond.iter().find(is_other) {
            return Err(format!("{address} is that of the pod {} on the other host", other.name));
        }
        let before = match self.ports.get(&id) {
            None => None,
            // It is the same pod, and it does not run where it was.
            Some(port) if port.lease == lease && (port.is_away() || port.client == client) => {
                let before = self.leave(id);
                let other = before.as_ref().map(|port| port.client).filter(|it| *it != client);
                other.and_then(|other| self.clients.remove(&other));
                before
            }
            Some(port) => return Err(format!("{address} is that of the pod {}", port.name)),
        };
        self.check_client(client)?;
        if self.ports.len() >= PORTS_MAX {
            return Err(format!("a network has at most {PORTS_MAX} pods"));
        }
        let card = card_of(address);
        let interface = Interface {
            mac: Some(Mac(card)),
            addresses: vec![address.into()],
            ..Interface::default()
        };
        self.router.add(id, interface, self.now()).map_err(|error| error.to_string())?;
        tracing::info!("{name} is {address}");
        let mut port = Port::new(name, lease, client, frames, names);
        if let Some(before) = before {
            port.follow(before, &mut self.frame);
        }
        let word = announcement(card, address);
        for other in self.ports.values_mut() {
            other.send(&word, true);
        }
        let has_earlier = port.has_earlier();
        self.ports.insert(id, port);
        if has_earlier {
            self.announce(id);
        }
        self.tell_names();
        Ok(())
    }

    /// A connection is for one port.
    fn check_client(&self, client: u64) -> Result<(), String> {
        match self.ports.values().any(|port| port.client == client) {
            true => Err("a connection has one port".to_owned()),
            false => Ok(()),
        }
    }

    /// Joins another switch: what is for nobody here is for it.
    fn join(&mut self, client: u64, files: Vec<OwnedFd>) -> Result<(), String> {
        let [frames, names] = two(files)?;
        self.check_client(client)?;
        let added = self.router.add(PortId::Uplink, Interface::default(), self.now());
        added.map_err(|_| "the network is joined to another host's already")?;
        tracing::info!("another switch is joined");
        let (name, lease) = ("another host".to_owned(), String::new());
        self.ports.insert(PortId::Uplink, Port::new(name, lease, client, frames, names));
        self.tell_names();
        Ok(())
    }

    /// Who is at the other switch now, as the client says that carries what comes from there.
    fn note_beyond(&mut self, client: u64, pods: Vec<Attach>) -> Result<(), String> {
        if self.ports.get(&PortId::Uplink).is_none_or(|port| port.client != client) {
            return Err("this connection leads to no other switch".to_owned());
        }
        if pods.len() > PORTS_MAX {
            return Err(format!("a network has at most {PORTS_MAX} pods"));
        }
        for Attach { name, address, lease } in &pods {
            check_words(name, lease)?;
            let here = self.ports.get(&self.number_of(*address)?);
            if let Some(here) = here.filter(|port| port.lease != *lease) {
                return Err(format!(
                    "{address} is the address of the pod {name} there and of {} here",
                    here.name
                ));
            }
        }
        for Attach { address, .. } in &pods {
            let id = self.number_of(*address)?;
            if self.ports.get(&id).is_some_and(Port::is_away) {
                self.give_away(id);
            }
        }
        self.beyond = pods;
        self.tell_names();
        Ok(())
    }

    /// A pod that was away runs at the other switch: what was held for it is for there.
    fn give_away(&mut self, id: PortId) {
        let Some(port) = self.leave(id) else { return };
        self.clients.remove(&port.client);
        if let Some(way) = self.ports.get_mut(&PortId::Uplink) {
            for frame in port.held() {
                // What is not taken is lost, as on a wire.
                way.send(&frame, true);
            }
        }
    }

    /// The number of the port that has an address.
    fn number_of(&self, address: Ipv4Addr) -> Result<PortId, String> {
        let mask = u32::MAX << (32 - u32::from(self.bits));
        let host = address.to_bits() & !mask;
        let is_inside = (address.to_bits() ^ self.gateway.to_bits()) & mask == 0;
        let is_of_all = host == 0 || host == !mask;
        match u16::try_from(host) {
            Ok(host) if is_inside && !is_of_all && address != self.gateway => Ok(PortId::Vif(host)),
            _ => Err(format!("{address} is no address of a pod of this network")),
        }
    }

    /// The pods that are here.
    fn pods(&self) -> Vec<Attach> {
        let mask = u32::MAX << (32 - u32::from(self.bits));
        let prefix = self.gateway.to_bits() & mask;
        let pod = |(id, port): (&PortId, &Port)| match id {
            PortId::Vif(host) => Some(Attach {
                name: port.name.clone(),
                address: Ipv4Addr::from_bits(prefix | u32::from(*host)),
                lease: port.lease.clone(),
            }),
            PortId::Uplink => None,
        };
        self.ports.iter().filter_map(pod).collect()
    }

    /// Tells everybody who is in the network: lines with an address and a name. Of two with one address, who is moving,
    /// the one that is here is told. The other switch is told who is here.
    fn tell_names(&self) {
        let here = self.pods();
        let is_here = |pod: &&Attach| here.iter().any(|it| it.address == pod.address);
        let there = self.beyond.iter().filter(|pod| !is_here(pod));
        let line = |pod: &Attach| format!("{} {}\n", pod.address, pod.name);
        let names: String = here.iter().chain(there).map(line).collect();
        let pods = serde_json::to_vec(&here).unwrap_or_default();
        for (id, port) in &self.ports {
            port.tell_names(match id {
                PortId::Uplink => &pods,
                PortId::Vif(_) => names.as_bytes(),
            });
        }
    }
}

fn two(files: Vec<OwnedFd>) -> Result<[OwnedFd; FILES_MAX], String> {
    files.try_into().map_err(|_| "a port comes with two sockets".to_owned())
}

fn check_words(name: &str, lease: &str) -> Result<(), String> {
    let is_word = |text: &str| (1..=NAME_BYTES).contains(&text.len()) && !text.contains('\n');
    match is_word(name) && is_word(lease) {
        true => Ok(()),
        false => Err(format!("a pod has a name and a lease of 1 to {NAME_BYTES} bytes")),
    }
}

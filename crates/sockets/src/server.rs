//! The loop: dispatches packets from the machine, and events of sockets.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Instant;

use host::poll::{PollFlags, Poller};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, connect, socket_with,
};
use rustix::process::Uid;

use crate::connection::{Asking, Connection, Fate, Ports, Wanted};
use crate::limits::{MAX_CONNECTIONS, OUTPUT_WITH_RESETS_BYTES};
use crate::wire::{Header, Input, Output, operation};

/// The first of the ports that connections to the guest come from.
const FIRST_PORT: u32 = 1 << 30;

/// What a descriptor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Cable,
    Listener,
    Asking(usize),
    Connection(Ports),
}

/// A guest's sockets.
pub struct Server {
    cable: OwnedFd,
    listener: UnixListener,
    /// The listener's path, for those of whoever the guest connects to.
    path: PathBuf,
    input: Input,
    output: Output,
    asking: Vec<Asking>,
    connections: BTreeMap<Ports, Connection>,
    next_port: u32,
    /// The user who may connect, besides root.
    owner: Uid,
}

impl Server {
    /// The sockets of a guest with this address, whose machine is at the other end of `cable`. `listener`
    /// listens at `path`.
    ///
    /// # Errors
    ///
    /// The listener cannot be made not to wait.
    pub fn new(
        cable: OwnedFd,
        guest: u32,
        listener: UnixListener,
        path: PathBuf,
    ) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        Ok(Server {
            cable,
            listener,
            path,
            input: Input::default(),
            output: Output::new(guest.into()),
            asking: Vec::new(),
            connections: BTreeMap::new(),
            next_port: FIRST_PORT,
            owner: rustix::process::geteuid(),
        })
    }

    /// Serve until the machine has gone.
    ///
    /// # Errors
    ///
    /// poll(2) fails.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            let ready = self.wait(true)?;
            if !self.step(&ready) {
                return Ok(());
            }
        }
    }

    /// Connections that there are, those included that are none yet.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len() + self.asking.len()
    }

    /// As [`Self::run`], without waiting; whether the machine is still there.
    ///
    /// # Errors
    ///
    /// poll(2) fails.
    pub fn look(&mut self) -> io::Result<bool> {
        let ready = self.wait(false)?;
        Ok(self.step(&ready))
    }

    /// Wait for something to do, or look for it.
    fn wait(&self, may_wait: bool) -> io::Result<Vec<(Token, PollFlags)>> {
        let mut poller = Poller::new();
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.output.waiting() > 0);
        poller.register(Token::Cable, self.cable.as_fd(), flags);
        if self.connections() < MAX_CONNECTIONS {
            poller.register(Token::Listener, self.listener.as_fd(), PollFlags::IN);
        }
        for (number, asking) in self.asking.iter().enumerate() {
            poller.register(Token::Asking(number), asking.socket.as_fd(), PollFlags::IN);
        }
        for (ports, connection) in &self.connections {
            if let Some((file, flags)) = connection.interest(&self.output) {
                poller.register(Token::Connection(*ports), file, flags);
            }
        }
        match may_wait {
            true => poller.wait(self.deadline())?,
            false => poller.look()?,
        };
        Ok(poller.ready().collect())
    }

    /// When the first connection, or program that is to become one, is late.
    fn deadline(&self) -> Option<Instant> {
        let of_asking = self.asking.iter().map(Asking::deadline);
        of_asking.chain(self.connections.values().filter_map(Connection::deadline)).min()
    }

    /// Do what there is to do; false when the machine has gone.
    fn step(&mut self, ready: &[(Token, PollFlags)]) -> bool {
        let now = Instant::now();
        let mut wanted = Vec::new();
        for (token, flags) in ready {
            match token {
                Token::Cable if flags.intersects(!PollFlags::OUT) => {
                    if !self.take_packets(now) {
                        return false;
                    }
                }
                Token::Cable => {}
                Token::Listener => self.accept(now),
                Token::Asking(number) => {
                    if let Some(asking) = self.asking.get_mut(*number) {
                        wanted.push((*number, asking.read()));
                    }
                }
                Token::Connection(ports) => {
                    // It may have ended just now.
                    if let Some(connection) = self.connections.get_mut(ports) {
                        connection.give(now);
                        connection.read(&mut self.output, flags.contains(PollFlags::HUP), now);
                    }
                }
            }
        }
        self.grant(wanted, now);
        self.tend(now);
        self.output.flush(self.cable.as_fd()).is_ok()
    }

    /// Those who have said what they want ask the guest, or are dismissed.
    fn grant(&mut self, wanted: Vec<(usize, Wanted)>, now: Instant) {
        for (number, port) in wanted.into_iter().rev() {
            if port == Wanted::Unknown {
                continue;
            }
            let asking = self.asking.remove(number);
            if let Wanted::Port(guest) = port {
                let ports = Ports { guest, host: self.free_port(guest) };
                let connection = Connection::asked(ports, asking.socket, now);
                self.connections.insert(ports, connection);
            }
        }
        self.asking.retain(|asking| asking.deadline() > now);
    }

    fn free_port(&mut self, guest: u32) -> u32 {
        loop {
            let host = self.next_port;
            // There are far more of them than connections.
            self.next_port = host.checked_add(1).unwrap_or(FIRST_PORT);
            if !self.connections.contains_key(&Ports { guest, host }) {
                return host;
            }
        }
    }

    /// Everybody says what there is to say; what is over is forgotten.
    fn tend(&mut self, now: Instant) {
        let mut over = Vec::new();
        for (ports, connection) in &mut self.connections {
            connection.speak(&mut self.output);
            let is_late = connection.deadline().is_some_and(|deadline| deadline <= now);
            if is_late || connection.fate() == Fate::Reset {
                over.push(*ports);
            }
        }
        over.into_iter().for_each(|ports| self.reset(ports));
    }

    /// Forget a connection, if there is one, and tell the guest.
    fn reset(&mut self, ports: Ports) {
        self.connections.remove(&ports);
        if self.output.waiting() < OUTPUT_WITH_RESETS_BYTES {
            let (from, to) = (ports.host, ports.guest);
            self.output
                .add(Header { from, to, operation: operation::RESET, ..Header::default() }, &[]);
        }
    }

    fn accept(&mut self, now: Instant) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in self.connections()..MAX_CONNECTIONS {
            // What fails is tried again when somebody comes.
            let Ok((socket, _)) = acceptfrom_with(&self.listener, flags) else { return };
            if host::peer::is_of(&socket, self.owner) {
                self.asking.push(Asking::new(socket, now));
            }
        }
    }

    /// Hear all that has come; false when the machine has gone, or speaks nonsense.
    fn take_packets(&mut self, now: Instant) -> bool {
        match self.input.receive(self.cable.as_fd()) {
            Ok(None) => return true,
            Ok(Some(0)) | Err(_) => return false,
            Ok(Some(_)) => {}
        }
        let mut input = std::mem::take(&mut self.input);
        let is_good = loop {
            match input.next_packet() {
                Ok(Some((header, data))) => self.take_packet(&header, data, now),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        self.input = input;
        is_good
    }

    fn take_packet(&mut self, header: &Header, data: &[u8], now: Instant) {
        let ports = Ports { guest: header.from, host: header.to };
        match (header.operation, self.connections.get_mut(&ports)) {
            // Whoever the programs were connected to is no more.
            (operation::BEGIN, _) => self.connections.clear(),
            (operation::RESET, Some(connection)) => {
                // What the guest has sent before is the program's, as far as it takes it now.
                connection.give(now);
                self.connections.remove(&ports);
            }
            (operation::RESET, None) => {}
            (operation::REQUEST, None) => match self.connect(ports, header) {
                Some(connection) => drop(self.connections.insert(ports, connection)),
                None => self.reset(ports),
            },
            (operation::REQUEST, Some(_)) | (_, None) => self.reset(ports),
            (_, Some(connection)) => {
                if connection.hear(header, data, now) == Fate::Reset {
                    self.reset(ports);
                }
            }
        }
    }

    /// Connect to the program that listens for that port of the host.
    fn connect(&self, ports: Ports, header: &Header) -> Option<Connection> {
        if self.connections() >= MAX_CONNECTIONS {
            return None;
        }
        let mut path = self.path.clone().into_os_string();
        path.push(format!("_{}", ports.host));
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        // One that does not accept what waits for it already takes no more.
        connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
        Some(Connection::accepted(ports, socket, header))
    }
}

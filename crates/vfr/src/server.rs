//! The loop: turns, cables, and what the control socket asks for.
//!
//! A round serves a few turns, writes what they have brought about, and looks who is ready. A port whose cable has
//! something is announced to the router, and is not looked at again before its turn is over: so a port that has to wait
//! for its rate costs nothing.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use host::Patience;
use host::poll::{PollFlags, Poller};
use router::{
    Destination, Frame, Interface, Mac, PortId, Prefix, Rate, Reason, Router, Rules, Time, Turn,
};

use crate::cable::{Cable, Came, Next, Ready};
use crate::control::{Asked, Control};
use crate::limits::{
    LONELY_TIMEOUT, NAME_BYTES, OUTPUT_BYTES, OUTPUTS_BYTES, PORTS_OF_REPLY, READS_OF_TURN,
    TURNS_AT_ONCE,
};
use crate::wire::{Attach, Port, Reply, Request, RuleState};

/// What the uplink is called.
const UPLINK: &str = "uplink";

/// Bits that the prefix of a network may have: a VIF's number is what of its address is behind them.
const PREFIX_BITS: std::ops::RangeInclusive<u8> = 16..=30;

/// What a router is made from.
#[derive(Debug)]
pub struct Plan {
    /// A socket of packets that listens.
    pub control: OwnedFd,
    /// The way to the world, if there is one.
    pub uplink: Option<OwnedFd>,
    /// The Ethernet address of who is at its other end.
    pub uplink_mac: [u8; 6],
    /// That one's address, which is in the network's prefix.
    pub gateway: Ipv4Addr,
    /// Bits of the prefix.
    pub bits: u8,
}

/// A port's cable.
struct Station {
    name: String,
    cable: Cable,
    /// The router knows that it has something to send.
    is_announced: bool,
}

/// A router that runs.
pub struct Server {
    router: Router,
    control: Control,
    stations: BTreeMap<PortId, Station>,
    gateway: Ipv4Addr,
    prefix: Prefix,
    bits: u8,
    started: Instant,
    /// Since when nobody is attached.
    lonely: Option<Instant>,
    /// The destinations of a frame.
    destinations: Vec<Destination>,
    /// How long to watch before a sleep.
    patience: Patience,
}

/// What is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Listener,
    Client(usize),
    Cable(PortId),
}

/// When the loop has to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Now,
    Until(Time),
    Idle,
}

impl Server {
    /// A router to which nobody is attached but the world.
    ///
    /// # Errors
    ///
    /// It is to have a gateway that it cannot have.
    pub fn new(plan: Plan) -> io::Result<Self> {
        let Plan { control, uplink, uplink_mac, gateway, bits } = plan;
        let wrong = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, reason);
        if !PREFIX_BITS.contains(&bits) {
            return Err(wrong("the prefix of a network has 16 to 30 bits"));
        }
        let prefix = Prefix::new(network_of(gateway, bits).into(), bits);
        let prefix = prefix.ok_or_else(|| wrong("the network has no prefix"))?;
        let started = Instant::now();
        let mut server = Self {
            router: Router::new(),
            control: Control::new(control),
            stations: BTreeMap::new(),
            gateway,
            prefix,
            bits,
            started,
            lonely: Some(started),
            destinations: Vec::new(),
            patience: Patience::default(),
        };
        if let Some(socket) = uplink {
            let mac = Some(Mac(uplink_mac));
            let interface =
                Interface { mac, addresses: vec![gateway.into()], ..Interface::default() };
            server
                .join(PortId::Uplink, UPLINK.to_owned(), interface, Cable::new(socket))
                .map_err(|it| wrong(&it))?;
        }
        Ok(server)
    }

    /// Route until nobody has been attached for a while.
    ///
    /// # Errors
    ///
    /// The host does not let it wait.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            let wait = self.take_turns();
            let deadline = match self.deadline(wait) {
                Some(deadline) => deadline,
                None => return Ok(()),
            };
            self.look(deadline)?;
        }
    }

    /// One round without waiting, as [`Self::run`] has them, for tests and fuzzing.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn step(&mut self) -> io::Result<()> {
        self.look(Some(self.started))?;
        self.take_turns();
        Ok(())
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Until when to wait, if not for ever; `None` is the end.
    #[expect(clippy::option_option, reason = "the outer is whether to go on at all")]
    fn deadline(&mut self, wait: Wait) -> Option<Option<Instant>> {
        let is_alone = self.stations.keys().all(|port| *port == PortId::Uplink);
        let lonely = is_alone.then(|| *self.lonely.get_or_insert_with(Instant::now));
        self.lonely = lonely;
        let end = lonely.and_then(|since| since.checked_add(LONELY_TIMEOUT));
        if end.is_some_and(|end| end <= Instant::now()) {
            return None;
        }
        let turn = match wait {
            Wait::Now => Some(self.started),
            Wait::Until(time) => self.started.checked_add(Duration::from_nanos(time.0)),
            Wait::Idle => None,
        };
        Some(turn.into_iter().chain(end).min())
    }

    /// Serve some turns, and write what came of them.
    fn take_turns(&mut self) -> Wait {
        let mut wait = Wait::Now;
        for _ in 0..TURNS_AT_ONCE {
            match self.router.next_turn(self.now()) {
                router::Next::Turn(turn) => self.serve(turn),
                router::Next::Wait(time) => {
                    wait = Wait::Until(time);
                    break;
                }
                router::Next::Idle => {
                    wait = Wait::Idle;
                    break;
                }
            }
        }
        let mut gone = Vec::new();
        for (port, station) in &mut self.stations {
            if station.cable.can_write() && station.cable.write().is_err() {
                gone.push(*port);
            }
        }
        gone.into_iter().for_each(|port| self.leave(port));
        wait
    }

    /// A port's turn.
    fn serve(&mut self, mut turn: Turn) {
        let from = turn.port();
        // It is nobody's destination of its own frames.
        let Some(mut station) = self.stations.remove(&from) else {
            return self.router.end_turn(turn, false);
        };
        let (mut reads, mut has_more) = (0, true);
        let is_over = loop {
            if !turn.has_room() {
                break false;
            }
            match station.cable.find() {
                Next::Frame(bytes) => {
                    self.submit(&mut turn, &mut station.cable, bytes);
                    station.cable.pass();
                }
                Next::Broken => break true,
                Next::Part if reads == READS_OF_TURN => break false,
                Next::Part => match station.cable.read() {
                    Came::More => reads += 1,
                    Came::Ended => break true,
                    Came::Nothing => {
                        has_more = false;
                        break false;
                    }
                },
            }
        };
        station.is_announced = has_more;
        self.router.end_turn(turn, has_more);
        self.stations.insert(from, station);
        if is_over {
            self.leave(from);
        }
    }

    /// A frame, to those who get it.
    fn submit(&mut self, turn: &mut Turn, cable: &mut Cable, bytes: usize) {
        // No frame is longer than 32 bits can say (`limits::FRAME_BYTES`).
        let bytes = bytes as u32;
        let frame = Frame { head: cable.head(), bytes };
        let now = self.now();
        let from = turn.port();
        let (least, most) = OUTPUT_BYTES.into_inner();
        let room = (OUTPUTS_BYTES / self.stations.len().max(1)).clamp(least, most);
        let mut destinations = std::mem::take(&mut self.destinations);
        destinations.clear();
        destinations.extend_from_slice(self.router.submit(turn, &frame, now).destinations);
        for Destination { port, mac } in &destinations {
            let station = self.stations.get_mut(port);
            let is_taken = station.is_some_and(|station| {
                if station.cable.is_batch() {
                    // If that fails, so it does when the rest is written.
                    let _ = station.cable.write();
                }
                station.cable.put((from, cable), *mac, room)
            });
            if !is_taken {
                self.router.undelivered(*port, bytes);
            }
        }
        self.destinations = destinations;
    }

    /// Wait until somebody is ready, and note who.
    fn look(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let waits = deadline != Some(self.started) && !self.watch();
        let sleeps = |station: &Station| station.cable.sleeps(station.is_announced);
        // Who has something now is not waited for.
        let is_ready = waits && !self.stations.values().all(sleeps);
        let deadline = if is_ready || !waits { Some(self.started) } else { deadline };
        let mut poller = Poller::new();
        if let Some(listener) = self.control.listener() {
            poller.register(Token::Listener, listener, PollFlags::IN);
        }
        for (number, client) in self.control.clients().enumerate() {
            poller.register(Token::Client(number), client, PollFlags::IN);
        }
        for (port, station) in &self.stations {
            let interest = station.cable.interest(station.is_announced);
            // Whose turn is still to come has its end noticed then.
            if !interest.is_empty() {
                poller.register(Token::Cable(*port), station.cable.as_fd(), interest);
            }
        }
        poller.wait(deadline)?;
        if waits {
            self.patience.woken();
        }
        let ready: Vec<(Token, PollFlags)> = poller.ready().collect();
        let mut gone = Vec::new();
        for (token, flags) in ready {
            match token {
                Token::Listener => self.control.accept(),
                Token::Client(number) => gone.extend((!self.hear(number)).then_some(number)),
                Token::Cable(port) => self.note(port, flags),
            }
        }
        self.control.forget(&gone);
        for (port, station) in &mut self.stations {
            if station.cable.wakes() && !station.is_announced {
                station.is_announced = true;
                self.router.announce(*port);
            }
        }
        Ok(())
    }

    /// Watch for a moment whether something comes, before there is a sleep; whether it does.
    fn watch(&mut self) -> bool {
        let watched = self.stations.values().filter(|station| !station.is_announced);
        let is_worth_it = watched.clone().any(|station| station.cable.can_be_watched());
        is_worth_it && self.patience.watch(|| watched.clone().any(|it| it.cable.has_come()))
    }

    /// A cable is ready for something.
    fn note(&mut self, port: PortId, flags: PollFlags) {
        let Some(station) = self.stations.get_mut(&port) else { return };
        let Ready { has_input, is_over } = station.cable.note(flags);
        match station.is_announced {
            false if has_input => {
                station.is_announced = true;
                self.router.announce(port);
            }
            // Nothing is left, or what is left waits for its turn, which hinders reading to the end.
            _ if is_over => self.leave(port),
            _ => {}
        }
    }

    /// A client has something to say; whether it is still there then.
    fn hear(&mut self, client: usize) -> bool {
        let reply = match self.control.request(client) {
            Asked::Nothing => return true,
            Asked::Gone => return false,
            Asked::Wrong(reason) => Reply::Refused(reason),
            Asked::Request(request, files) => {
                self.carry_out(request, files).unwrap_or_else(Reply::Refused)
            }
        };
        self.control.answer(client, &reply)
    }

    /// Do what is asked for; an error says why not.
    fn carry_out(&mut self, request: Request, files: Vec<OwnedFd>) -> Result<Reply, String> {
        let text = |error: router::ConfigurationError| error.to_string();
        let now = self.now();
        match request {
            Request::Attach(attach) => self.attach(attach, cable_of(files)?).map(|()| Reply::Done),
            Request::Rules { name } => {
                let rules = self.router.rules(self.find(&name)?);
                let state = |(direction, rule, matched): (_, router::Rule, router::Tally)| {
                    RuleState { rule: format!("{direction} {rule}"), matched: matched.into() }
                };
                Ok(Reply::Rules(rules.into_iter().map(state).collect()))
            }
            Request::SetRules { name, text: rules } => {
                let rules = parse(&rules)?;
                self.router.set_rules(self.find(&name)?, &rules, now).map_err(text)?;
                Ok(Reply::Done)
            }
            Request::SetRate { name, rate } => {
                let rate = rate.map(Rate::new);
                self.router.set_rate(self.find(&name)?, rate, now).map_err(text)?;
                Ok(Reply::Done)
            }
            Request::Ports { from } => {
                let some = self.stations.iter().skip(from).take(PORTS_OF_REPLY);
                Ok(Reply::Ports(some.map(|(port, it)| self.describe(*port, it)).collect()))
            }
        }
    }

    fn find(&self, name: &str) -> Result<PortId, String> {
        let found = self.stations.iter().find(|(_, station)| station.name == name);
        found.map(|(port, _)| *port).ok_or_else(|| format!("nobody called {name} is attached"))
    }

    /// A domain's VIF, in the place of one that it has had.
    fn attach(&mut self, attach: Attach, cable: Cable) -> Result<(), String> {
        let Attach { name, mac, address, bits, rate, rules } = attach;
        if name.is_empty() || name.len() > NAME_BYTES || name == UPLINK {
            return Err(format!("a VIF's owner has a name of 1 to {NAME_BYTES} bytes"));
        }
        let rules = parse(&rules)?;
        let port = self.number_of(address, bits)?;
        let old = self.find(&name).ok();
        if let Some(other) = self.stations.get(&port).filter(|_| old != Some(port)) {
            return Err(format!("{address} is that of {}: give each domain its own", other.name));
        }
        if let Some(old) = old {
            self.leave(old);
        }
        let rate = rate.map(Rate::new);
        let mac = Some(Mac(mac));
        let interface = Interface { mac, addresses: vec![address], is_trusted: false, rate };
        self.join(port, name, interface, cable)?;
        let now = self.now();
        self.router.set_rules(port, &rules, now).map_err(|error| {
            self.leave(port);
            error.to_string()
        })
    }

    /// The number of the VIF that has an address: so that rules can name it before it is there.
    fn number_of(&self, address: IpAddr, bits: u8) -> Result<PortId, String> {
        let (gateway, own) = (self.gateway, self.bits);
        let wrong = || {
            Err(format!("this network's addresses are those of {}, but for {gateway}", self.prefix))
        };
        let IpAddr::V4(address) = address else { return wrong() };
        let host = address.to_bits() & !mask(own);
        let is_of_all = host == 0 || host == !mask(own);
        if bits != own || !self.prefix.contains(address.into()) || is_of_all || address == gateway {
            return wrong();
        }
        u16::try_from(host).map(PortId::Vif).or_else(|_| wrong())
    }

    /// A port from now on.
    fn join(
        &mut self,
        port: PortId,
        name: String,
        interface: Interface,
        cable: Cable,
    ) -> Result<(), String> {
        let now = self.now();
        self.router.add(port, interface, now).map_err(|error| error.to_string())?;
        tracing::info!("{name} is {port}");
        let station = Station { name, cable, is_announced: false };
        self.stations.insert(port, station);
        Ok(())
    }

    /// A port no more.
    fn leave(&mut self, port: PortId) {
        if let Some(station) = self.stations.remove(&port) {
            tracing::info!("{} has gone", station.name);
            // It was there.
            let _ = self.router.remove(port);
        }
    }

    fn describe(&self, port: PortId, station: &Station) -> Port {
        let counters = self.router.counters(port).cloned().unwrap_or_default();
        let dropped = |reason: &Reason| {
            let tally = counters.dropped(*reason);
            (tally.packets > 0).then(|| (reason.name().to_owned(), tally.into()))
        };
        let interface = self.router.interface(port).cloned().unwrap_or_default();
        Port {
            name: station.name.clone(),
            port: port.to_string(),
            mac: interface.mac.map(|mac| mac.to_string()),
            addresses: interface.addresses,
            rate: interface.rate.map(|rate| rate.bytes_per_second),
            transmitted: counters.transmitted.into(),
            received: counters.received.into(),
            dropped: Reason::ALL.iter().filter_map(dropped).collect(),
        }
    }
}

/// The cable that comes with a VIF: a socket, and the memory that frames are in, if they are in one.
fn cable_of(files: Vec<OwnedFd>) -> Result<Cable, String> {
    let mut files = files.into_iter();
    let socket = files.next().ok_or("a VIF comes with its cable")?;
    match files.next() {
        None => Ok(Cable::new(socket)),
        Some(memory) => Cable::in_memory(memory, socket).map_err(|error| error.to_string()),
    }
}

fn parse(rules: &str) -> Result<Rules, String> {
    rules.parse().map_err(|error: router::RuleError| error.to_string())
}

/// The mask of a prefix, which is not empty.
fn mask(bits: u8) -> u32 {
    u32::MAX << (32 - u32::from(bits))
}

fn network_of(address: Ipv4Addr, bits: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits() & mask(bits))
}

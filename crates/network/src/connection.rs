//! A TCP connection: smoltcp keeps the guest's half, and the other is a socket of the host.
//!
//! Each connection has a smoltcp interface of its own with one socket in it, so that a packet costs
//! the same however many connections there are. A connection that the guest opens is accepted when
//! the host's connection is made, and refused when that is refused. The end of data of each half
//! becomes that of the other.

use std::io;
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint, IpListenEndpoint};

use crate::cable::{Input, Output, Turn};
use crate::limits::ACCEPT_TIMEOUT;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The host's socket is not connected yet.
    Connecting,
    /// Both are, or the guest's soon is.
    Open,
    /// The host's socket is of no more use; the guest is still to be told.
    Failed,
}

/// See above. `here` is whom the guest speaks to, `there` the guest.
pub struct Connection {
    pub here: SocketAddrV4,
    pub there: SocketAddrV4,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    host: TcpStream,
    stage: Stage,
    /// What the host's socket was last known to be ready for.
    pub can_read: bool,
    pub can_write: bool,
    host_has_ended: bool,
    /// The guest has said all that it had to say; and the host has heard it.
    guest_has_ended: bool,
    host_knows: bool,
    mtu: usize,
    /// Bytes that it holds of each direction at most.
    pub buffer: usize,
}

impl Connection {
    /// One that the guest opens: its first packet comes next. The host's socket is being connected. It holds so
    /// many bytes of each direction.
    pub fn from_guest(
        here: SocketAddrV4,
        there: SocketAddrV4,
        host: TcpStream,
        (mtu, buffer): (usize, usize),
        now: Instant,
    ) -> Option<Self> {
        let mut it = Self::new(here, there, host, Stage::Connecting, (mtu, buffer), now)?;
        let socket = it.sockets.get_mut::<Socket>(it.socket);
        // The guest's first packet is answered when the host's socket is connected.
        socket.pause_synack(true);
        let addr = Some(IpAddress::from(*here.ip()));
        socket.listen(IpListenEndpoint { addr, port: here.port() }).ok()?;
        Some(it)
    }

    /// One that the host has accepted.
    pub fn to_guest(
        here: SocketAddrV4,
        there: SocketAddrV4,
        host: TcpStream,
        (mtu, buffer): (usize, usize),
        now: Instant,
    ) -> Option<Self> {
        let mut it = Self::new(here, there, host, Stage::Open, (mtu, buffer), now)?;
        let socket = it.sockets.get_mut::<Socket>(it.socket);
        socket.connect(it.interface.context(), endpoint(there), endpoint(here)).ok()?;
        Some(it)
    }

    fn new(
        here: SocketAddrV4,
        there: SocketAddrV4,
        host: TcpStream,
        stage: Stage,
        (mtu, buffer): (usize, usize),
        now: Instant,
    ) -> Option<Self> {
        let mut config = Config::new(HardwareAddress::Ip);
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).ok()?;
        config.random_seed = u64::from_ne_bytes(seed);
        let (mut output, input) = (Output::none(), Input::empty());
        let mut nothing = Turn { input: &input, frames: [].iter(), output: &mut output, mtu };
        let mut interface = Interface::new(config, &mut nothing, now);
        interface.update_ip_addrs(|addresses| {
            // There is room for one.
            let _ = addresses.push(IpCidr::new(IpAddress::from(*here.ip()), 32));
        });
        let buffers = [(); 2].map(|()| SocketBuffer::new(vec![0; buffer]));
        let [incoming, outgoing] = buffers;
        let mut socket = Socket::new(incoming, outgoing);
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        // Until both sides have opened it; then it may be silent as long as it likes.
        socket.set_timeout(Some(Duration::from_secs(ACCEPT_TIMEOUT.as_secs())));
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let socket = sockets.add(socket);
        Some(Self {
            here,
            there,
            interface,
            sockets,
            socket,
            host,
            stage,
            can_read: false,
            can_write: false,
            host_has_ended: false,
            guest_has_ended: false,
            host_knows: false,
            mtu,
            buffer,
        })
    }

    /// The host's socket.
    pub fn host(&self) -> &TcpStream {
        &self.host
    }

    /// Whether nothing is left to be done for it.
    pub fn is_over(&self) -> bool {
        match self.sockets.get::<Socket>(self.socket).state() {
            // What was taken for its first packet was none.
            State::Listen => true,
            State::Closed | State::TimeWait => {
                let is_broken = self.stage != Stage::Open || !self.guest_has_ended;
                is_broken || self.host_knows
            }
            _ => false,
        }
    }

    /// Take these packets of the guest's, move what can be moved, and say what is to be said; when to
    /// look again.
    pub fn turn(
        &mut self,
        input: &Input,
        frames: &[Range<usize>],
        output: &mut Output,
        now: Instant,
    ) -> Option<Instant> {
        let mut turn = Turn { input, frames: frames.iter(), output, mtu: self.mtu };
        for _ in frames {
            self.interface.poll_ingress_single(now, &mut turn, &mut self.sockets);
        }
        self.settle_host();
        // What is said makes room for more.
        for _ in 0..4 {
            let moved = self.move_bytes();
            self.interface.poll_egress(now, &mut turn, &mut self.sockets);
            if !moved || !turn.output.has_room() {
                break;
            }
        }
        self.interface.poll_at(now, &self.sockets)
    }

    /// See whether the host's socket is connected by now, or has failed.
    fn settle_host(&mut self) {
        if self.stage != Stage::Connecting || !self.can_write {
            return;
        }
        let socket = self.sockets.get_mut::<Socket>(self.socket);
        match sockopt::socket_error(&self.host) {
            Ok(Ok(())) => {
                self.stage = Stage::Open;
                socket.pause_synack(false);
            }
            _ => self.fail(),
        }
    }

    /// The host's side is broken: the guest's is reset.
    fn fail(&mut self) {
        self.stage = Stage::Failed;
        self.sockets.get_mut::<Socket>(self.socket).abort();
    }

    /// Move bytes both ways; whether there were any.
    fn move_bytes(&mut self) -> bool {
        if self.stage != Stage::Open {
            return false;
        }
        let moved = self.send_to_host().and_then(|out| Ok(self.receive_from_host()? || out));
        match moved {
            Ok(moved) => moved,
            Err(_) => {
                self.fail();
                true
            }
        }
    }

    fn send_to_host(&mut self) -> io::Result<bool> {
        let socket = self.sockets.get_mut::<Socket>(self.socket);
        let (host, mut moved) = (&self.host, false);
        while self.can_write && socket.can_recv() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = socket.recv(|bytes| match send(host, bytes, flags) {
                Ok(count) => (count, Ok(count)),
                Err(Errno::AGAIN | Errno::INTR) => (0, Ok(0)),
                Err(error) => (0, Err(error)),
            });
            match sent.map_err(io::Error::other)?? {
                0 => self.can_write = false,
                _ => moved = true,
            }
        }
        match socket.state() {
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait => {
                self.guest_has_ended = true;
            }
            State::Established if socket.timeout().is_some() => socket.set_timeout(None),
            _ => {}
        }
        if self.guest_has_ended && !self.host_knows && !socket.can_recv() {
            self.host_knows = true;
            // It fails if the host has gone, too.
            let _ = host.shutdown(Shutdown::Write);
        }
        Ok(moved)
    }

    fn receive_from_host(&mut self) -> io::Result<bool> {
        let socket = self.sockets.get_mut::<Socket>(self.socket);
        let (host, mut moved) = (&self.host, false);
        while self.can_read && !self.host_has_ended && socket.can_send() {
            let received = socket.send(|room| match recv(host, &mut *room, RecvFlags::DONTWAIT) {
                Ok((count, _)) => (count, Ok(Some(count))),
                Err(Errno::AGAIN | Errno::INTR) => (0, Ok(None)),
                Err(error) => (0, Err(error)),
            });
            match received.map_err(io::Error::other)?? {
                None => self.can_read = false,
                Some(0) => {
                    self.host_has_ended = true;
                    socket.close();
                    moved = true;
                }
                Some(_) => moved = true,
            }
        }
        Ok(moved)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A guest that has reset its side resets the other.
        if !self.host_knows {
            let _ = sockopt::set_socket_linger(self.host.as_fd(), Some(std::time::Duration::ZERO));
        }
    }
}

fn endpoint(address: SocketAddrV4) -> IpEndpoint {
    IpEndpoint::new(IpAddress::from(*address.ip()), address.port())
}

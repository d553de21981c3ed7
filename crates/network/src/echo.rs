//! Echo requests (ping). Our own addresses answer. Requests to other addresses go through ICMP
//! sockets, where the host allows them (icmp(7), `ping_group_range`).

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recvfrom, sendto,
    socket_with,
};

use crate::addresses::Addresses;
use crate::cable::{Output, Watch};
use crate::limits::{self, DATAGRAMS_AT_ONCE, IDLE_TIMEOUT, MAX_ECHOES};
use crate::packets::{Packet, add_echo_reply, add_prohibited};

const REQUEST: u8 = 8;
const REPLY: u8 = 0;

/// A socket for one identifier of the guest's.
struct Echo {
    socket: OwnedFd,
    guest: Ipv4Addr,
    identifier: [u8; 2],
    used: Instant,
}

/// All of them; their tokens are those from `first` on.
pub struct Echoes {
    first: u64,
    next: u64,
    /// How many one guest may have.
    of_guest: usize,
    echoes: HashMap<u64, Echo>,
}

impl Echoes {
    pub fn new(first: u64, has_several: bool) -> Self {
        let of_guest = limits::of_guest(MAX_ECHOES, has_several);
        Self { first, next: 0, of_guest, echoes: HashMap::new() }
    }

    /// The guest asks.
    pub fn ask(
        &mut self,
        packet: &Packet<'_>,
        addresses: &Addresses,
        output: &mut Output,
        watch: &Watch,
    ) {
        let Some([REQUEST, 0, _, _, a, b, _, _]) = packet.payload.first_chunk::<8>() else {
            return;
        };
        if addresses.is_ours(packet.to) {
            return add_echo_reply(output, packet.to, packet.from, &packet.payload[4..]);
        }
        let Some(to) = addresses.reach(SocketAddrV4::new(packet.to, 1)) else {
            if addresses.is_one(packet.to) {
                add_prohibited(output, packet, addresses.gateway);
            }
            return;
        };
        let Some(echo) = self.echo(packet.from, [*a, *b], watch) else { return };
        echo.used = Instant::now();
        // The kernel puts an identifier of its own in. What is lost is lost.
        let to = SocketAddrV4::new(*to.ip(), 0);
        let _ = sendto(&echo.socket, packet.payload, SendFlags::DONTWAIT, &to);
    }

    fn echo(&mut self, guest: Ipv4Addr, identifier: [u8; 2], watch: &Watch) -> Option<&mut Echo> {
        let is_it = |echo: &Echo| echo.guest == guest && echo.identifier == identifier;
        let known = self.echoes.iter().find(|(_, echo)| is_it(echo)).map(|(token, _)| *token);
        let its_own = || self.echoes.values().filter(|it| it.guest == guest).count();
        let token = match known {
            Some(token) => token,
            None if self.echoes.len() >= MAX_ECHOES || its_own() >= self.of_guest => return None,
            None => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
                let socket = socket_with(family, kind, flags, Some(ipproto::ICMP)).ok()?;
                let token = self.first + self.next;
                self.next += 1;
                watch.add(&socket, token).ok()?;
                let used = Instant::now();
                self.echoes.insert(token, Echo { socket, guest, identifier, used });
                token
            }
        };
        self.echoes.get_mut(&token)
    }

    /// A socket has an answer.
    pub fn receive(&mut self, token: u64, output: &mut Output) {
        let Some(echo) = self.echoes.get_mut(&token) else { return };
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..DATAGRAMS_AT_ONCE {
            let received = recvfrom(&echo.socket, &mut buffer[..], RecvFlags::DONTWAIT);
            let Ok((count, _, Some(from))) = received else { return };
            let Ok(from) = SocketAddrV4::try_from(from) else { continue };
            let answer = &mut buffer[..count];
            if answer.len() >= 8 && answer[0] == REPLY {
                answer[4..6].copy_from_slice(&echo.identifier);
                add_echo_reply(output, *from.ip(), echo.guest, &answer[4..]);
            }
        }
    }

    /// Forget what has not been used for long.
    pub fn sweep(&mut self, now: Instant) {
        self.echoes.retain(|_, echo| now.saturating_duration_since(echo.used) < IDLE_TIMEOUT);
    }
}

//! A DHCP client (RFC 2131): asks until a server answers, configures the interface, and asks again
//! when half of the lease is over.
//!
//! It asks for broadcast answers, which an ordinary socket receives before there is an address.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use netlink::Conversation;

use super::{Settings, apply};

/// Message types (RFC 2132, 9.6).
mod kind {
    pub const DISCOVER: u8 = 1;
    pub const OFFER: u8 = 2;
    pub const REQUEST: u8 = 3;
    pub const ACKNOWLEDGEMENT: u8 = 5;
}

/// Options (RFC 2132).
mod option {
    pub const MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const NAMESERVERS: u8 = 6;
    pub const MTU: u8 = 26;
    pub const ADDRESS: u8 = 50;
    pub const LEASE: u8 = 51;
    pub const KIND: u8 = 53;
    pub const SERVER: u8 = 54;
    pub const WANTED: u8 = 55;
    pub const END: u8 = 255;
}

/// Bytes before the options: the header of BOOTP and the magic number.
const HEADER_BYTES: usize = 240;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
const TRANSACTION: [u8; 4] = *b"bivk";

/// Times between questions.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(16);

/// The shortest time between two leases.
const SHORTEST_LEASE: Duration = Duration::from_secs(60);

/// Set the interface up as the network has it, and wait for that for a while.
pub fn start(index: u32, address: [u8; 6], patience: Duration) -> io::Result<()> {
    let mut netlink = Conversation::start()?;
    netlink.add_direct_route(index, Ipv4Addr::BROADCAST)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68))?;
    socket.set_broadcast(true)?;
    let client = Client { socket, address };
    let (done, outcome) = mpsc::channel();
    std::thread::Builder::new().name("dhcp".into()).spawn(move || {
        loop {
            let lease = match client.ask() {
                Ok((settings, lease)) => {
                    let _ = done.send(apply(&mut netlink, index, &settings));
                    lease
                }
                Err(error) => {
                    let _ = done.send(Err(error));
                    LONGEST_WAIT
                }
            };
            std::thread::sleep(lease / 2);
        }
    })?;
    outcome.recv_timeout(patience).unwrap_or_else(|_| {
        // The network comes when it comes: a command may do without until then, or set it up itself.
        crate::kernel::complain(&["network: no DHCP server has answered yet".to_owned()]);
        Ok(())
    })
}

struct Client {
    socket: UdpSocket,
    address: [u8; 6],
}

impl Client {
    /// Ask until there is a lease.
    fn ask(&self) -> io::Result<(Settings, Duration)> {
        let mut wait = FIRST_WAIT;
        loop {
            if let Some(offer) = self.exchange(&[], kind::DISCOVER, kind::OFFER, wait)? {
                let mut options = vec![option::ADDRESS, 4];
                options.extend(offer.address.octets());
                if let Some(server) = offer.server {
                    options.extend([option::SERVER, 4]);
                    options.extend(server);
                }
                let lease = self.exchange(&options, kind::REQUEST, kind::ACKNOWLEDGEMENT, wait)?;
                if let Some(lease) = lease {
                    return Ok((lease.settings(), lease.time.max(SHORTEST_LEASE)));
                }
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Say something, and wait so long for an answer of this kind.
    fn exchange(
        &self,
        options: &[u8],
        say: u8,
        hear: u8,
        wait: Duration,
    ) -> io::Result<Option<Answer>> {
        match self.socket.send_to(&self.message(say, options), (Ipv4Addr::BROADCAST, 67)) {
            // The interface may not be up yet.
            Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable => {}
            sent => drop(sent?),
        }
        self.socket.set_read_timeout(Some(wait))?;
        let mut bytes = [0; 1500];
        // Others may talk, too.
        for _ in 0..16 {
            match self.socket.recv(&mut bytes) {
                Ok(length) => {
                    let answer = parse(&bytes[..length], self.address);
                    if let Some(answer) = answer.filter(|answer| answer.kind == hear) {
                        return Ok(Some(answer));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn message(&self, kind: u8, options: &[u8]) -> Vec<u8> {
        let mut message = vec![1, 1, 6, 0]; // a request, over Ethernet, with addresses of 6 bytes
        message.extend(TRANSACTION);
        message.extend([0, 0, 0x80, 0]); // the answer is to be broadcast
        message.resize(28, 0);
        message.extend(self.address);
        message.resize(HEADER_BYTES - MAGIC.len(), 0);
        message.extend(MAGIC);
        message.extend([option::KIND, 1, kind]);
        message.extend(options);
        message.extend([option::WANTED, 4]);
        message.extend([option::MASK, option::ROUTER, option::NAMESERVERS, option::MTU]);
        message.push(option::END);
        message
    }
}

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    kind: u8,
    address: Ipv4Addr,
    server: Option<[u8; 4]>,
    prefix_bits: u8,
    gateway: Option<Ipv4Addr>,
    nameservers: Vec<Ipv4Addr>,
    mtu: Option<u16>,
    time: Duration,
}

impl Answer {
    fn settings(&self) -> Settings {
        Settings {
            address: self.address,
            prefix_bits: self.prefix_bits,
            gateway: self.gateway,
            nameservers: self.nameservers.clone(),
            mtu: self.mtu,
        }
    }
}

/// An answer to us, if that is one.
fn parse(message: &[u8], address: [u8; 6]) -> Option<Answer> {
    let is_ours = message.first() == Some(&2)
        && message.get(4..8)? == TRANSACTION
        && message.get(28..34)? == address
        && message.get(HEADER_BYTES - 4..HEADER_BYTES)? == MAGIC;
    if !is_ours {
        return None;
    }
    let mut answer = Answer {
        kind: 0,
        address: four(message.get(16..20)?)?.into(),
        server: None,
        prefix_bits: 24,
        gateway: None,
        nameservers: Vec::new(),
        mtu: None,
        time: Duration::MAX,
    };
    let mut rest = &message[HEADER_BYTES..];
    while let [kind, after @ ..] = rest {
        if *kind == option::END {
            break;
        }
        // A byte of padding has no length.
        if *kind == 0 {
            rest = after;
            continue;
        }
        let (length, after) = after.split_first()?;
        let value = after.get(..usize::from(*length))?;
        rest = &after[value.len()..];
        match *kind {
            option::KIND => answer.kind = *value.first()?,
            option::MASK => {
                answer.prefix_bits = u32::from_be_bytes(four(value)?).leading_ones() as u8;
            }
            option::ROUTER => answer.gateway = four(value).map(Ipv4Addr::from),
            option::NAMESERVERS => {
                answer.nameservers =
                    value.chunks_exact(4).filter_map(four).map(Into::into).collect();
            }
            option::MTU => answer.mtu = Some(u16::from_be_bytes(value.try_into().ok()?)),
            option::LEASE => {
                answer.time = Duration::from_secs(u32::from_be_bytes(four(value)?).into());
            }
            option::SERVER => answer.server = four(value),
            _ => {}
        }
    }
    Some(answer)
}

fn four(bytes: &[u8]) -> Option<[u8; 4]> {
    bytes.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

    fn answer(options: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER_BYTES];
        message[0] = 2;
        message[4..8].copy_from_slice(&TRANSACTION);
        message[16..20].copy_from_slice(&[192, 168, 0, 7]);
        message[28..34].copy_from_slice(&OURS);
        message[236..].copy_from_slice(&MAGIC);
        message.extend(options);
        message
    }

    #[test]
    fn an_answer_is_taken_apart() {
        let options = [
            53, 1, 5, 0, 1, 4, 255, 255, 240, 0, 3, 4, 192, 168, 0, 1, 6, 8, 1, 1, 1, 1, 8, 8, 8,
            8, 26, 2, 5, 120, 51, 4, 0, 0, 14, 16, 54, 4, 192, 168, 0, 2, 255, 9,
        ];
        let answer = parse(&answer(&options), OURS).unwrap();
        let expected = Answer {
            kind: kind::ACKNOWLEDGEMENT,
            address: Ipv4Addr::new(192, 168, 0, 7),
            server: Some([192, 168, 0, 2]),
            prefix_bits: 20,
            gateway: Some(Ipv4Addr::new(192, 168, 0, 1)),
            nameservers: vec![Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(8, 8, 8, 8)],
            mtu: Some(1400),
            time: Duration::from_secs(3600),
        };
        assert_eq!(answer, expected);
    }

    #[test]
    fn what_is_not_for_us_or_damaged_is_not_heard() {
        let good = answer(&[53, 1, 2, 255]);
        assert!(parse(&good, OURS).is_some());
        assert_eq!(parse(&good, [0; 6]), None);
        for length in 0..HEADER_BYTES {
            assert_eq!(parse(&good[..length], OURS), None);
        }
        for options in [&[53][..], &[53, 2, 1], &[1, 3, 0, 0, 0], &[26, 1, 0], &[51, 0]] {
            assert_eq!(parse(&answer(options), OURS), None, "{options:?}");
        }
    }
}

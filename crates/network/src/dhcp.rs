//! A DHCP server with one address to give (RFC 2131).

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::addresses::Addresses;
use crate::cable::Output;
use crate::packets::add_datagram;

/// The port on which it listens, and the client's.
pub const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

/// Bytes before the options, the last of which are a magic number.
const HEADER_BYTES: usize = 240;
const MAGIC: [u8; 4] = [99, 130, 83, 99];

const LEASE_SECONDS: u32 = 86400;

/// Message types.
mod kind {
    pub const DISCOVER: u8 = 1;
    pub const OFFER: u8 = 2;
    pub const REQUEST: u8 = 3;
    pub const ACKNOWLEDGEMENT: u8 = 5;
    pub const REFUSAL: u8 = 6;
    pub const INFORM: u8 = 8;
}

/// Options.
mod option {
    pub const REQUESTED: u8 = 50;
    pub const KIND: u8 = 53;
    pub const SERVER: u8 = 54;
    pub const END: u8 = 255;
}

/// Answer what a client says.
pub fn answer(message: &[u8], addresses: &Addresses, mtu: u16, output: &mut Output) {
    let Some(header) = message.first_chunk::<HEADER_BYTES>() else { return };
    if header[0] != 1 || header[236..] != MAGIC {
        return;
    }
    let options = &message[HEADER_BYTES..];
    let Some([said]) = find(options, option::KIND) else { return };
    let is_for_another =
        find(options, option::SERVER).is_some_and(|server| server != addresses.gateway.octets());
    if is_for_another {
        return;
    }
    let known = find(options, option::REQUESTED).unwrap_or(&header[12..16]);
    let kind = match *said {
        kind::DISCOVER => kind::OFFER,
        kind::REQUEST if known != addresses.guest.octets() => kind::REFUSAL,
        kind::REQUEST | kind::INFORM => kind::ACKNOWLEDGEMENT,
        _ => return,
    };
    let mut answer = vec![0; HEADER_BYTES];
    answer[0] = 2;
    answer[1..3].copy_from_slice(&[1, 6]);
    // Transaction, flags, the client's address and Ethernet address.
    answer[4..8].copy_from_slice(&header[4..8]);
    answer[10..16].copy_from_slice(&header[10..16]);
    answer[28..44].copy_from_slice(&header[28..44]);
    answer[20..24].copy_from_slice(&addresses.gateway.octets());
    answer[236..].copy_from_slice(&MAGIC);
    answer.extend([option::KIND, 1, kind, option::SERVER, 4]);
    answer.extend(addresses.gateway.octets());
    if kind != kind::REFUSAL {
        if *said != kind::INFORM {
            answer[16..20].copy_from_slice(&addresses.guest.octets());
            answer.extend([51, 4]);
            answer.extend(LEASE_SECONDS.to_be_bytes());
        }
        for (option, value) in [
            (1, addresses.mask().to_be_bytes()),
            (3, addresses.gateway.octets()),
            (6, addresses.nameserver.octets()),
        ] {
            answer.extend([option, 4]);
            answer.extend(value);
        }
        answer.extend([26, 2]);
        answer.extend(mtu.to_be_bytes());
    }
    answer.push(option::END);
    // Who asks for it is told by broadcast, and so is who has no address yet to be told at.
    let wants_broadcast = header[10] & 0x80 != 0 || kind == kind::REFUSAL;
    let to = if wants_broadcast { Ipv4Addr::BROADCAST } else { addresses.guest };
    let from = SocketAddrV4::new(addresses.gateway, SERVER_PORT);
    add_datagram(output, from, SocketAddrV4::new(to, CLIENT_PORT), &answer);
}

/// The value of an option.
fn find(mut options: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [kind, rest @ ..] = options {
        match *kind {
            option::END => return None,
            0 => options = rest,
            kind => {
                let (length, rest) = rest.split_first()?;
                let value = rest.get(..usize::from(*length))?;
                if kind == wanted {
                    return Some(value);
                }
                options = &rest[value.len()..];
            }
        }
    }
    None
}

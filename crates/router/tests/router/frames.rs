//! Frames, made of their parts.

use std::net::IpAddr;

use router::Mac;

pub const BROADCAST: Mac = Mac([255; 6]);

/// The address of VIF `number` or, as 0, of the gateway behind the uplink.
pub fn mac(number: u8) -> Mac {
    Mac([2, 0x16, 0x3e, 0, 0, number])
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("it is an address")
}

pub fn ethernet(from: Mac, to: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &kind.to_be_bytes(), payload].concat()
}

pub fn arp(from: Mac, to: Mac, request: bool, sender: (Mac, &str), target: &str) -> Vec<u8> {
    let octets = |text: &str| match ip(text) {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => panic!("ARP is for IPv4"),
    };
    let mut payload = vec![0, 1, 8, 0, 6, 4, 0, if request { 1 } else { 2 }];
    payload.extend(sender.0.0);
    payload.extend(octets(sender.1));
    payload.extend([0; 6]);
    payload.extend(octets(target));
    ethernet(from, to, 0x0806, &payload)
}

/// A packet of either kind of IP.
pub fn packet(from: (Mac, &str), to: (Mac, &str), protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (ip(from.1), ip(to.1)) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut bytes = vec![0x45, 0];
            bytes.extend((20 + payload.len() as u16).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            bytes.extend(payload);
            ethernet(from.0, to.0, 0x0800, &bytes)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut bytes = vec![0x60, 0, 0, 0];
            bytes.extend((payload.len() as u16).to_be_bytes());
            bytes.extend([protocol, 255]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            bytes.extend(payload);
            ethernet(from.0, to.0, 0x86dd, &bytes)
        }
        _ => panic!("both addresses are of one kind"),
    }
}

pub fn udp_payload(from: u16, to: u16, data: usize) -> Vec<u8> {
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
    bytes.extend((8 + data as u16).to_be_bytes());
    bytes.extend(vec![0; 2 + data]);
    bytes
}

pub fn udp(from: (Mac, &str), to: (Mac, &str), ports: (u16, u16)) -> Vec<u8> {
    packet(from, to, 17, &udp_payload(ports.0, ports.1, 10))
}

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;

pub fn tcp(from: (Mac, &str), to: (Mac, &str), ports: (u16, u16), flags: u8) -> Vec<u8> {
    let mut bytes = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    packet(from, to, 6, &bytes)
}

/// Neighbour discovery, with an option.
pub fn neighbour(
    from: (Mac, &str),
    to: (Mac, &str),
    kind: u8,
    target: &str,
    option: Option<(u8, Mac)>,
) -> Vec<u8> {
    let IpAddr::V6(target) = ip(target) else { panic!("it is for IPv6") };
    let mut bytes = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    if kind == 135 || kind == 136 {
        bytes.extend(target.octets());
    }
    if let Some((kind, mac)) = option {
        bytes.extend([kind, 1]);
        bytes.extend(mac.0);
    }
    packet(from, to, 58, &bytes)
}

//! The network as a guest's frames see it, without a machine.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::addresses::Addresses;
use crate::limits::{
    CONNECTION_BUFFER_BYTES, MAX_BUFFERED_BYTES, MAX_CONNECTIONS, MAX_FULL_CONNECTIONS,
    SMALL_BUFFER_BYTES,
};
use crate::packets::{Packet, checksum};
use crate::{Plan, Server};

const CARD: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

pub fn addresses() -> Addresses {
    Addresses {
        guest: GUEST,
        gateway: GATEWAY,
        host: Some(Ipv4Addr::LOCALHOST),
        nameserver: [10, 0, 2, 3].into(),
        prefix_bits: 24,
        resolver: Some("127.0.0.53:53".parse().unwrap()),
    }
}

/// A network from which the host is reached, and the machine's end of its cable.
fn server() -> (Server, UnixStream) {
    server_of(addresses(), Some(CARD))
}

/// The same with other addresses, and with several guests if no card is that of the only one.
fn server_of(addresses: Addresses, card: Option<[u8; 6]>) -> (Server, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let plan = Plan { addresses, mtu: 65520, card, tcp: vec![], udp: vec![], names: None };
    (Server::new(theirs.into(), plan).unwrap(), ours)
}

/// A frame as it goes through the cable.
fn frame(kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
    let mut bytes = ((14 + payload.len()) as u32).to_be_bytes().to_vec();
    bytes.extend([0xff; 6]);
    bytes.extend(CARD);
    bytes.extend(kind);
    bytes.extend(payload);
    bytes
}

fn packet(protocol: u8, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend(((20 + payload.len()) as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    bytes.extend(GUEST.octets());
    bytes.extend(to.octets());
    bytes.extend(payload);
    frame([8, 0], &bytes)
}

fn datagram(to: SocketAddrV4, from: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = from.to_be_bytes().to_vec();
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(((8 + payload.len()) as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    packet(17, *to.ip(), &bytes)
}

/// A segment of TCP without data.
fn segment(to: SocketAddrV4, flags: u8) -> Vec<u8> {
    segment_from(4000, to, flags)
}

fn segment_from(port: u16, to: SocketAddrV4, flags: u8) -> Vec<u8> {
    let mut bytes = port.to_be_bytes().to_vec();
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(1000u32.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet(6, *to.ip(), &bytes)
}

#[test]
fn who_has_our_addresses_is_answered() {
    let ask = |wanted: [u8; 4]| {
        let mut question = vec![0, 1, 8, 0, 6, 4, 0, 1];
        question.extend(CARD);
        question.extend(GUEST.octets());
        question.extend([0; 6]);
        question.extend(wanted);
        server().0.feed(&frame([8, 6], &question))
    };
    let answer = ask([10, 0, 2, 3]);
    assert_eq!(answer[4..10], CARD);
    assert_eq!(answer[18..26], [0, 1, 8, 0, 6, 4, 0, 2]);
    assert_eq!(answer[32..36], [10, 0, 2, 3]);
    assert_eq!(ask([10, 0, 2, 15]), [], "the guest may ask whether its address is free");
}

#[test]
fn the_gateway_answers_echo_requests() {
    let said = server().0.feed(&packet(1, GATEWAY, &[8, 0, 0, 0, 1, 2, 3, 4, 5]));
    let packet = Packet::parse(&said[18..]).unwrap();
    assert_eq!((packet.from, packet.to), (GATEWAY, GUEST));
    assert_eq!(packet.payload[4..], [1, 2, 3, 4, 5]);
    assert_eq!((packet.payload[0], checksum(packet.payload), checksum(&said[18..38])), (0, 0, 0));
}

/// A router between them and us knows by the address of IP whose a packet is.
#[test]
fn several_guests_are_answered_by_their_addresses() {
    let (mut server, _end) = server_of(addresses(), None);
    let mut question = vec![0, 1, 8, 0, 6, 4, 0, 1];
    question.extend(CARD);
    question.extend([10, 0, 2, 77]);
    question.extend([0; 6]);
    question.extend(GATEWAY.octets());
    assert_eq!(server.feed(&frame([8, 6], &question))[4..10], CARD);
    let said = server.feed(&packet(1, GATEWAY, &[8, 0, 0, 0, 1, 2, 3, 4]));
    assert_eq!(Packet::parse(&said[18..]).unwrap().to, GUEST);
    assert_ne!(said[4..10], CARD, "that of whoever spoke last may be another's");
    let mut message = vec![1, 1, 6, 0, 9, 9, 9, 9];
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, 1, 255]);
    let asks = datagram("255.255.255.255:67".parse().unwrap(), 68, &message);
    assert_eq!(server.feed(&asks), [], "they have their addresses");
}

/// A guest that opens whatever it can leaves others a way out.
#[test]
fn one_of_several_guests_has_its_part_only() {
    let (mut server, _end) = server_of(addresses(), None);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = SocketAddrV4::new(GATEWAY, listener.local_addr().unwrap().port());
    let part = MAX_CONNECTIONS / 4;
    // Each is a descriptor.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    for port in 0..part as u16 + 50 {
        server.feed(&segment_from(1024 + port, to, 2));
    }
    assert_eq!(server.connections(), part);
    let mut other = segment_from(9999, to, 2);
    other[4 + 14 + 15] = 99;
    server.feed(&other);
    assert_eq!(server.connections(), part + 1);
}

#[test]
fn an_address_is_given_to_whoever_asks() {
    let ask = |kind: u8, more: &[u8]| {
        let mut message = vec![1, 1, 6, 0, 9, 9, 9, 9];
        message.resize(236, 0);
        message.extend([99, 130, 83, 99, 53, 1, kind]);
        message.extend(more);
        message.push(255);
        server().0.feed(&datagram("255.255.255.255:67".parse().unwrap(), 68, &message))
    };
    let offer = ask(1, &[]);
    let datagram = Packet::parse(&offer[18..]).unwrap();
    let message = datagram.datagram().unwrap();
    assert_eq!((datagram.to, &message[16..20]), (GUEST, &GUEST.octets()[..]));
    assert_eq!(message[240..243], [53, 1, 2]);
    assert!(message.windows(6).any(|option| option == [3, 4, 10, 0, 2, 2]), "{message:?}");
    let kind = |said: Vec<u8>| said.get(18 + 28 + 242).copied();
    assert_eq!(kind(ask(3, &[50, 4, 10, 0, 2, 15])), Some(5));
    assert_eq!(kind(ask(3, &[50, 4, 10, 0, 2, 16])), Some(6), "that is not ours to give");
    assert_eq!(kind(ask(3, &[54, 4, 1, 2, 3, 4])), None, "another server is asked");
    assert_eq!(kind(ask(1, &[50, 9])), Some(2), "an option without its value is none");
}

#[test]
fn datagrams_go_out_and_come_back() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = SocketAddrV4::new(GATEWAY, socket.local_addr().unwrap().port());
    let (mut server, mut end) = server();
    server.feed(&datagram(to, 5000, b"hello"));
    let mut bytes = [0; 100];
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (count, from) = socket.recv_from(&mut bytes).unwrap();
    assert_eq!(&bytes[..count], b"hello");
    let thread = std::thread::spawn(move || server.run());
    socket.send_to(b"there", from).unwrap();
    let mut said = [0; 4 + 14 + 20 + 8 + 5];
    end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    end.read_exact(&mut said).unwrap();
    let answer = Packet::parse(&said[18..]).unwrap();
    assert_eq!(answer.ends().unwrap(), (to, SocketAddrV4::new(GUEST, 5000)));
    assert_eq!(answer.datagram().unwrap(), b"there");
    drop(end);
    thread.join().unwrap().unwrap();
}

#[test]
fn a_connection_is_accepted_when_the_hosts_is_and_refused_when_that_is() {
    const SYN: u8 = 2;
    let answer_to = |port: u16| {
        let (mut server, mut end) = server();
        let thread = std::thread::spawn(move || server.run());
        end.write_all(&segment(SocketAddrV4::new(GATEWAY, port), SYN)).unwrap();
        end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut said = [0; 4 + 14 + 20 + 20];
        end.read_exact(&mut said).unwrap();
        drop(end);
        thread.join().unwrap().unwrap();
        said[18 + 20 + 13]
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_eq!(answer_to(port), 0x12, "SYN and ACK");
    drop(listener);
    assert_eq!(answer_to(port) & 4, 4, "RST");
}

#[test]
fn what_leads_nowhere_or_is_no_connection_is_reset() {
    let check = |to: &str, flags: u8, expected: Option<u8>| {
        let said = server().0.feed(&segment(to.parse().unwrap(), flags));
        assert_eq!(said.get(18 + 20 + 13).copied(), expected, "{to} {flags:#x}");
    };
    check("10.0.2.3:80", 2, Some(0x14));
    check("10.0.2.15:80", 2, Some(0x14));
    check("10.0.2.2:80", 0x10, Some(4));
    check("10.0.2.2:80", 4, None);
}

/// What a guest hears that may not reach the host, at once, and nobody hears what it says.
#[test]
fn the_host_is_out_of_reach_unless_it_is_allowed() {
    const SYN: u8 = 2;
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let tcp = listener.local_addr().unwrap().port();
    let udp = socket.local_addr().unwrap().port();
    let closed = || server_of(Addresses { host: None, ..addresses() }, Some(CARD)).0;
    for to in ["10.0.2.2", "127.0.0.1", "127.0.0.53", "169.254.169.254", "0.0.0.0"] {
        let to: Ipv4Addr = to.parse().unwrap();
        let said = closed().feed(&segment(SocketAddrV4::new(to, tcp), SYN));
        assert_eq!(said.get(18 + 20 + 13), Some(&0x14), "{to}: RST and ACK");
        let said = closed().feed(&datagram(SocketAddrV4::new(to, udp), 5000, b"hello"));
        if to.is_unspecified() {
            assert_eq!(said, [], "nobody answers for that");
        } else {
            check_prohibited(&said, 17);
        }
        if to != GATEWAY && !to.is_unspecified() {
            check_prohibited(&closed().feed(&packet(1, to, &[8, 0, 0, 0, 1, 2, 3, 4])), 1);
        }
    }
    assert!(listener.accept().is_err(), "somebody has connected");
    assert!(socket.recv_from(&mut [0; 9]).is_err(), "somebody has sent");
    // The same sockets, with leave.
    let (mut open, _end) = server();
    open.feed(&datagram(SocketAddrV4::new(GATEWAY, udp), 5000, b"hello"));
    socket.set_nonblocking(false).unwrap();
    assert_eq!(socket.recv_from(&mut [0; 9]).unwrap().0, 5);
}

/// This is a message of ICMP that tells the guest about a packet of its own.
fn check_prohibited(said: &[u8], protocol: u8) {
    let packet = Packet::parse(&said[18..]).unwrap();
    assert_eq!((packet.protocol, packet.from, packet.to), (1, GATEWAY, GUEST));
    assert_eq!((packet.payload[..2].to_vec(), checksum(packet.payload)), (vec![3, 13], 0));
    let told = &packet.payload[8..];
    assert_eq!((told[9], told.len()), (protocol, 28), "header and eight bytes of it");
}

#[test]
fn a_resolver_on_the_loopback_interface_is_asked_for_a_guest_that_cannot_reach_it() {
    let resolver = UdpSocket::bind("127.0.0.1:0").unwrap();
    resolver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let Ok(std::net::SocketAddr::V4(at)) = resolver.local_addr() else { panic!("not IPv4") };
    let (mut server, _end) =
        server_of(Addresses { host: None, resolver: Some(at), ..addresses() }, Some(CARD));
    let nameserver = SocketAddrV4::new(addresses().nameserver, 53);
    server.feed(&datagram(nameserver, 5000, b"who is it?"));
    let mut bytes = [0; 64];
    let (count, _) = resolver.recv_from(&mut bytes).unwrap();
    assert_eq!(&bytes[..count], b"who is it?");
    // Having been answered from there opens nothing.
    check_prohibited(&server.feed(&datagram(at, 5000, b"and this?")), 17);
}

/// Those that are more than a few hold less.
#[test]
fn many_connections_do_not_take_the_hosts_memory() {
    const SYN: u8 = 2;
    const MORE: usize = 50;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = SocketAddrV4::new(GATEWAY, listener.local_addr().unwrap().port());
    let (mut server, _end) = server();
    for port in 0..MAX_FULL_CONNECTIONS + MORE {
        server.feed(&segment_from(4000 + port as u16, to, SYN));
    }
    assert_eq!(server.connections(), MAX_FULL_CONNECTIONS + MORE);
    let full = 2 * MAX_FULL_CONNECTIONS * CONNECTION_BUFFER_BYTES;
    assert_eq!(server.buffered_bytes_max(), full + 2 * MORE * SMALL_BUFFER_BYTES);
    assert!(server.buffered_bytes_max() < MAX_BUFFERED_BYTES);
}

#[test]
fn nonsense_is_lost() {
    let (mut server, _end) = server();
    let good = segment("10.0.2.2:80".parse().unwrap(), 2);
    for length in 0..good.len() - 4 {
        let mut short = (length as u32).to_be_bytes().to_vec();
        short.extend(&good[4..4 + length]);
        server.feed(&short);
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn it_ends_with_its_cable_or_with_what_is_no_frame() {
    for bytes in [&[][..], &[0xff; 64]] {
        let (mut server, mut end) = server();
        end.write_all(bytes).unwrap();
        let start = Instant::now();
        if bytes.is_empty() {
            drop(end);
        }
        server.run().unwrap();
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

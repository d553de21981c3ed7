//! The process that is a guest's network, with the guest as an adversary: frames of any kind, and among them
//! connections and datagrams to the one server of the host's that there is.

#![no_main]

use std::cell::RefCell;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use network::{Addresses, Plan, Server};

const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

#[derive(Debug, Arbitrary)]
enum Frame {
    /// Anything, after an Ethernet header of this kind.
    Other { is_arp: bool, bytes: Vec<u8> },
    /// A packet to the gateway or somebody who is nobody.
    Packet { protocol: u8, to: u8, bytes: Vec<u8> },
    /// A segment to the server.
    Segment { from: u8, sequence: i8, acknowledged: i8, flags: u8, window: u16, bytes: Vec<u8> },
    /// Bytes in the cable.
    Raw(Vec<u8>),
}

struct Bench {
    server: Server,
    _end: UnixStream,
    listener: TcpListener,
}

impl Bench {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback interface");
        listener.set_nonblocking(true).expect("it can be");
        let (end, theirs) = UnixStream::pair().expect("a socket");
        let addresses = Addresses {
            guest: GUEST,
            gateway: GATEWAY,
            host: Some(Ipv4Addr::LOCALHOST),
            nameserver: Ipv4Addr::new(10, 0, 2, 3),
            // Everybody is inside: nothing goes out to the world.
            prefix_bits: 0,
            resolver: None,
        };
        let plan = Plan {
            addresses,
            mtu: 65520,
            card: Some([2; 6]),
            tcp: vec![],
            udp: vec![],
            names: None,
        };
        let server = Server::new(theirs.into(), plan).expect("descriptors");
        Self { server, _end: end, listener }
    }
}

fn packet(protocol: u8, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend(((20 + payload.len()) as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    bytes.extend(GUEST.octets());
    bytes.extend(to.octets());
    bytes.extend(payload);
    bytes
}

fn cable(kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
    let mut bytes = ((14 + payload.len()) as u32).to_be_bytes().to_vec();
    bytes.extend([2; 12]);
    bytes.extend(kind);
    bytes.extend(payload);
    bytes
}

fn bytes(frame: Frame, port: u16) -> Vec<u8> {
    match frame {
        Frame::Raw(bytes) => bytes,
        Frame::Other { is_arp: true, bytes } => cable([8, 6], &bytes),
        // What is of IPv4 goes where we know where that is.
        Frame::Other { bytes, .. } => cable([0x86, 0xdd], &bytes),
        Frame::Packet { protocol, to, bytes } => {
            let (to, mut bytes) = (Ipv4Addr::new(10, 0, 2, to), bytes);
            // Ports of this host that are not ours are left alone.
            if to == GATEWAY && matches!(protocol, 6 | 17) && bytes.len() >= 4 {
                bytes[2..4].copy_from_slice(&port.to_be_bytes());
            }
            cable([8, 0], &packet(protocol, to, &bytes))
        }
        Frame::Segment { from, sequence, acknowledged, flags, window, bytes } => {
            let mut segment = (40_000 + u16::from(from % 4)).to_be_bytes().to_vec();
            segment.extend(port.to_be_bytes());
            segment.extend((1000_i32.wrapping_add(sequence.into())).to_be_bytes());
            segment.extend((i32::from(acknowledged)).to_be_bytes());
            segment.extend([5 << 4, flags]);
            segment.extend(window.to_be_bytes());
            segment.extend([0; 4]);
            segment.extend(bytes);
            cable([8, 0], &packet(6, GATEWAY, &segment))
        }
    }
}

thread_local! {
    static BENCH: RefCell<Option<(Bench, u32)>> = const { RefCell::new(None) };
}

fuzz_target!(|frames: Vec<Frame>| {
    BENCH.with_borrow_mut(|bench| {
        // A new one now and then, because this one keeps what it was told.
        if bench.as_ref().is_none_or(|(_, uses)| *uses > 200) {
            *bench = Some((Bench::new(), 0));
        }
        let Some((bench, uses)) = bench else { return };
        *uses += 1;
        let port = bench.listener.local_addr().map_or(9, |address| address.port());
        for frame in frames {
            bench.server.feed(&bytes(frame, port));
            while bench.listener.accept().is_ok() {}
        }
        bench.server.look();
        assert!(bench.server.connections() <= network::limits::MAX_CONNECTIONS);
    });
});

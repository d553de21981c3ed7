//! A router's process without domains: cables whose ends are here, and its control socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use host::duplex::{Duplex, Side};
use host::poll::{PollFlags, wait_for};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use vfr::{Attach, Client, Plan, Port, Reply, Request, Server};

const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const UPLINK: [u8; 6] = [2, 0, 0, 0, 0, 0xff];
const PATIENCE: Duration = Duration::from_secs(20);

/// A router that runs on a thread of its own for as long as the test does.
struct Network {
    path: PathBuf,
    uplink: UnixStream,
}

/// A router, where it listens, and the world's end of its uplink.
fn server() -> ((Server, PathBuf), UnixStream) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("vfr-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let control = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&control, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&control, 16).unwrap();
    let (uplink, theirs) = cable();
    let plan =
        Plan { control, uplink: Some(theirs), uplink_mac: UPLINK, gateway: GATEWAY, bits: 24 };
    ((Server::new(plan).unwrap(), path), uplink)
}

impl Network {
    fn new() -> Network {
        let ((mut server, path), uplink) = server();
        std::thread::spawn(move || server.run());
        Network { path, uplink }
    }

    fn client(&self) -> Client {
        Client::connect(&self.path).unwrap()
    }

    fn ask(&self, request: &Request) -> Result<Reply, String> {
        self.client().ask(request, &[]).map_err(|error| error.to_string())
    }

    /// A domain whose address ends so.
    fn attach(&self, number: u8) -> UnixStream {
        let (ours, theirs) = cable();
        self.attach_as(number, None, "", &theirs).unwrap();
        ours
    }

    fn attach_as(
        &self,
        number: u8,
        rate: Option<u64>,
        rules: &str,
        cable: &OwnedFd,
    ) -> Result<(), String> {
        ask_to_attach(&self.client(), number, rate, rules, cable)
    }

    /// One whose frames are in memory.
    fn attach_in_memory(&self, number: u8) -> Duplex {
        let ((ours, theirs), memory) = (cable(), Duplex::memory().unwrap());
        let files = [theirs.as_fd(), memory.as_fd()];
        let request = Request::Attach(attachment(number, None, ""));
        self.client().ask(&request, &files).unwrap();
        Duplex::open(memory, ours.into(), Side::First).unwrap()
    }

    fn port(&self, name: &str) -> Option<Port> {
        self.client().ports().unwrap().into_iter().find(|port| port.name == name)
    }

    /// What was dropped at a domain's port for this reason.
    fn dropped(&self, number: u8, reason: &str) -> u64 {
        let port = self.port(&format!("vif{number}")).expect("it is attached");
        port.dropped.get(reason).map_or(0, |traffic| traffic.packets)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn ask_to_attach(
    client: &Client,
    number: u8,
    rate: Option<u64>,
    rules: &str,
    cable: &OwnedFd,
) -> Result<(), String> {
    let attach = attachment(number, rate, rules);
    let asked = client.ask(&Request::Attach(attach), &[cable.as_fd()]);
    asked.map(drop).map_err(|error| error.to_string())
}

fn attachment(number: u8, rate: Option<u64>, rules: &str) -> Attach {
    Attach {
        name: format!("vif{number}"),
        mac: mac(number),
        address: IpAddr::V4(ip(number)),
        bits: 24,
        rate,
        rules: rules.to_owned(),
    }
}

fn cable() -> (UnixStream, OwnedFd) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    ours.set_write_timeout(Some(PATIENCE)).unwrap();
    (ours, theirs.into())
}

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

fn ip(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

/// A datagram of so many bytes in all.
fn datagram(from: ([u8; 6], Ipv4Addr), to: ([u8; 6], Ipv4Addr), bytes: usize) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(((bytes - 14) as u16).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(from.1.octets());
    packet.extend(to.1.octets());
    packet.extend([0x13, 0x88, 0, 9]);
    packet.extend(((bytes - 34) as u16).to_be_bytes());
    packet.resize(bytes - 14, 0);
    let frame = [&to.0[..], &from.0, &[8, 0], &packet].concat();
    [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
}

fn between(from: u8, to: u8, bytes: usize) -> Vec<u8> {
    datagram((mac(from), ip(from)), (mac(to), ip(to)), bytes)
}

fn read(mut cable: &UnixStream) -> Vec<u8> {
    let mut prefix = [0; 4];
    cable.read_exact(&mut prefix).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(prefix) as usize];
    cable.read_exact(&mut frame).unwrap();
    [&prefix[..], &frame].concat()
}

/// The next frame that comes by memory, as the router wakes us for it.
fn read_memory(cable: &mut Duplex) -> Vec<u8> {
    let (mut come, mut whole) = (Vec::new(), 4);
    while come.len() < whole {
        let mut bytes = vec![0; whole - come.len()];
        match cable.reader.read(&mut bytes).unwrap() {
            0 => wait_for_bell(cable, cable.reader.sleeps()),
            count => come.extend_from_slice(&bytes[..count]),
        }
        if let Some(prefix) = come.first_chunk::<4>() {
            whole = 4 + u32::from_be_bytes(*prefix) as usize;
        }
    }
    come
}

/// The same for what goes.
fn write_memory(cable: &mut Duplex, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match cable.writer.write(bytes).unwrap() {
            0 => wait_for_bell(cable, cable.writer.sleeps()),
            count => bytes = &bytes[count..],
        }
    }
}

fn wait_for_bell(cable: &Duplex, sleeps: bool) {
    if sleeps {
        let deadline = Instant::now().checked_add(PATIENCE);
        assert!(!wait_for(&cable.bell, PollFlags::IN, deadline).unwrap().is_empty());
        assert!(cable.bell.hush());
    }
}

/// Whether a cable is cut, after whatever comes before.
fn is_cut(mut cable: &UnixStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match cable.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// Wait until something holds.
fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it does not come to hold");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn frames_reach_those_whom_they_are_for() {
    let network = Network::new();
    let (mut one, two) = (network.attach(2), network.attach(3));
    for bytes in [60, 1514, 60000] {
        one.write_all(&between(2, 3, bytes)).unwrap();
        assert_eq!(read(&two), between(2, 3, bytes));
    }
    let world = (UPLINK, Ipv4Addr::new(192, 0, 2, 1));
    let out = datagram((mac(2), ip(2)), world, 100);
    one.write_all(&out).unwrap();
    assert_eq!(read(&network.uplink), out);
    // The world knows domains by their addresses of IP.
    let nobody = [2, 0, 0, 0, 0, 0xfe];
    (&network.uplink).write_all(&datagram(world, (nobody, ip(3)), 100)).unwrap();
    assert_eq!(read(&two), datagram(world, (mac(3), ip(3)), 100));
    let port = network.port("vif2").unwrap();
    assert_eq!((port.port.as_str(), port.transmitted.packets), ("vif 2", 4));
}

#[test]
fn frames_go_by_memory_as_by_sockets() {
    let network = Network::new();
    let (mut one, mut two) = (network.attach_in_memory(2), network.attach_in_memory(3));
    let mut three = network.attach(4);
    for bytes in [60, 1514, 60000, 1515].repeat(40) {
        write_memory(&mut one, &between(2, 3, bytes));
        assert!(read_memory(&mut two) == between(2, 3, bytes));
    }
    write_memory(&mut two, &between(3, 4, 100));
    assert_eq!(read(&three), between(3, 4, 100));
    three.write_all(&between(4, 2, 100)).unwrap();
    assert_eq!(read_memory(&mut one), between(4, 2, 100));
}

#[test]
fn who_writes_what_is_no_ring_or_no_frame_is_cut_off() {
    let network = Network::new();
    let mut one = network.attach_in_memory(2);
    write_memory(&mut one, &[0xff; 8]);
    until(|| network.port("vif2").is_none());
    let ((_ours, theirs), memory) = (cable(), Duplex::memory().unwrap());
    // How much the domain has written, as it says.
    rustix::io::pwrite(&memory, &[0xff; 8], Duplex::WRITTEN_OF_FIRST).unwrap();
    let request = Request::Attach(attachment(2, None, ""));
    network.client().ask(&request, &[theirs.as_fd(), memory.as_fd()]).unwrap();
    until(|| network.port("vif2").is_none());
    let plain = rustix::fs::memfd_create("plain", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let refused = network.client().ask(&request, &[theirs.as_fd(), plain.as_fd()]);
    assert!(refused.unwrap_err().to_string().contains("memory"));
}

#[test]
fn who_takes_nothing_by_memory_costs_nobody_anything() {
    let network = Network::new();
    let (mut one, mut two) = (network.attach_in_memory(2), network.attach_in_memory(3));
    let _deaf = network.attach_in_memory(4);
    // More than memory, its lane, and as much again for a short one.
    for _ in 0..400 {
        write_memory(&mut one, &between(2, 4, 60000));
    }
    write_memory(&mut one, &between(2, 3, 100));
    assert_eq!(read_memory(&mut two), between(2, 3, 100));
    assert!(network.dropped(4, "no-buffer") > 0);
    // What has come before its end is sent on.
    write_memory(&mut one, &between(2, 3, 200));
    drop(one);
    assert_eq!(read_memory(&mut two), between(2, 3, 200));
    until(|| network.port("vif2").is_none());
}

#[test]
fn nobody_speaks_for_another() {
    let network = Network::new();
    let (mut one, two) = (network.attach(2), network.attach(3));
    one.write_all(&datagram((mac(4), ip(2)), (mac(3), ip(3)), 100)).unwrap();
    one.write_all(&datagram((mac(2), ip(4)), (mac(3), ip(3)), 100)).unwrap();
    one.write_all(&between(2, 3, 99)).unwrap();
    assert_eq!(read(&two), between(2, 3, 99));
    assert_eq!(network.dropped(2, "spoofed-mac"), 1);
    assert_eq!(network.dropped(2, "spoofed-address"), 1);
}

#[test]
fn rules_change_while_it_runs() {
    let network = Network::new();
    let (mut one, two) = (network.attach(2), network.attach(3));
    let set =
        |text: &str| network.ask(&Request::SetRules { name: "vif3".into(), text: text.into() });
    set("rx drop udp src 10.77.0.2").unwrap();
    one.write_all(&between(2, 3, 100)).unwrap();
    until(|| network.dropped(3, "rule") == 1);
    let rules = network.ask(&Request::Rules { name: "vif3".into() }).unwrap();
    let Reply::Rules(rules) = rules else { panic!("{rules:?}") };
    assert_eq!(
        (rules[0].rule.as_str(), rules[0].matched.packets),
        ("rx drop udp src 10.77.0.2", 1)
    );
    let refused = set("rx drop\nrx dropp").unwrap_err();
    assert!(refused.contains("line 2") && refused.contains("drop"), "{refused}");
    one.write_all(&between(2, 3, 100)).unwrap();
    until(|| network.dropped(3, "rule") == 2);
    set("").unwrap();
    one.write_all(&between(2, 3, 101)).unwrap();
    assert_eq!(read(&two), between(2, 3, 101));
    assert!(network.ask(&Request::Rules { name: "vif9".into() }).unwrap_err().contains("vif9"));
}

#[test]
fn who_has_a_rate_waits_and_loses_nothing() {
    const RATE: u64 = 1_000_000;
    const FRAMES: usize = 400;
    let network = Network::new();
    let (ours, theirs) = cable();
    network.attach_as(2, Some(RATE), "", &theirs).unwrap();
    let two = network.attach(3);
    let start = Instant::now();
    let sender = std::thread::spawn(move || {
        (0..FRAMES).for_each(|_| (&ours).write_all(&between(2, 3, 1500)).unwrap());
        ours
    });
    (0..FRAMES).for_each(|_| assert_eq!(read(&two).len(), 1504));
    let bytes = (FRAMES * 1500) as f64;
    // What goes at once is 100 kB, a tenth of a second's.
    let least = (bytes - 100_000.0 - 1500.0) / RATE as f64;
    let took = start.elapsed().as_secs_f64();
    assert!(took >= least, "{took} s, and not {least}");
    drop(sender.join().unwrap());
    assert_eq!(network.port("vif3").unwrap().received.packets, FRAMES as u64);
}

#[test]
fn who_does_not_read_loses_alone() {
    let network = Network::new();
    let (mut one, two, three) = (network.attach(2), network.attach(3), network.attach(4));
    // Much more than the socket and what is kept for it.
    for _ in 0..200 {
        one.write_all(&between(2, 3, 50000)).unwrap();
    }
    one.write_all(&between(2, 4, 100)).unwrap();
    assert_eq!(read(&three), between(2, 4, 100));
    assert!(network.dropped(3, "no-buffer") > 0);
    assert_eq!(read(&two), between(2, 3, 50000), "what was kept is whole");
}

#[test]
fn what_is_no_frame_cuts_its_cable_only() {
    let network = Network::new();
    let (mut one, two) = (network.attach(2), network.attach(3));
    for prefix in [u32::MAX, 65536 + 14, 13, 0] {
        let mut hostile = network.attach(9);
        hostile.write_all(&prefix.to_be_bytes()).unwrap();
        assert!(is_cut(&hostile), "{prefix}");
        until(|| network.port("vif9").is_none());
    }
    let mut half = network.attach(9);
    half.write_all(&between(9, 3, 1000)[..500]).unwrap();
    drop(half);
    until(|| network.port("vif9").is_none());
    // Frames that make no sense are dropped, one by one.
    let mut odd = network.attach(9);
    let broken = [&14u32.to_be_bytes()[..], &mac(3), &mac(9), &[8, 0]].concat();
    odd.write_all(&broken).unwrap();
    until(|| network.dropped(9, "malformed") == 1);
    one.write_all(&between(2, 3, 100)).unwrap();
    assert_eq!(read(&two), between(2, 3, 100));
}

#[test]
fn crumbs_are_a_frame_in_the_end() {
    let network = Network::new();
    let (mut one, mut crumbs, two) = (network.attach(2), network.attach(4), network.attach(3));
    let frame = between(4, 3, 100);
    // With the last byte it has its turn, before the other's or after it.
    let (last, bytes) = frame.split_last().unwrap();
    for byte in bytes {
        crumbs.write_all(&[*byte]).unwrap();
        one.write_all(&between(2, 3, 60)).unwrap();
        assert_eq!(read(&two).len(), 64, "others do not wait");
    }
    crumbs.write_all(&[*last]).unwrap();
    assert_eq!(read(&two), between(4, 3, 100));
}

#[test]
fn a_domain_is_attached_again_and_no_two_have_one_address() {
    let network = Network::new();
    let (old, two) = (network.attach(2), network.attach(3));
    let mut new = network.attach(2);
    assert!(is_cut(&old));
    new.write_all(&between(2, 3, 100)).unwrap();
    assert_eq!(read(&two), between(2, 3, 100));
    let check = |name: &str, address: &str, bits: u8, why: &str| {
        let address = address.parse().unwrap();
        let (name, rules) = (name.to_owned(), String::new());
        let attach = Attach { name, mac: mac(77), address, bits, rate: None, rules };
        let (_ours, theirs) = cable();
        let refused = network.client().ask(&Request::Attach(attach), &[theirs.as_fd()]);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    };
    check("other", "10.77.0.3", 24, "vif3");
    check("other", "10.77.0.1", 24, "10.77.0.0/24");
    check("other", "10.77.0.255", 24, "10.77.0.0/24");
    check("other", "10.78.0.4", 24, "10.77.0.0/24");
    check("other", "10.77.0.4", 16, "10.77.0.0/24");
    check("other", "fd00::1", 24, "10.77.0.0/24");
    check("uplink", "10.77.0.4", 24, "name");
    check("", "10.77.0.4", 24, "name");
    // Without a cable there is nothing to attach.
    let (name, rules) = ("other".to_owned(), String::new());
    let address = ip(5).into();
    let attach = Attach { name, mac: mac(5), address, bits: 24, rate: None, rules };
    assert!(network.ask(&Request::Attach(attach)).unwrap_err().contains("cable"));
    drop(two);
}

/// Three senders to one receiver, whose cables are full at each round, with frames of different sizes. Nothing runs
/// beside: who gets how much is the router's own doing.
#[test]
fn senders_share_within_a_tenth() {
    let (mut server, path) = server().0;
    let client = Client::connect(&path).unwrap();
    let attach = |server: &mut Server, number: u8| {
        let (ours, theirs) = cable();
        ours.set_nonblocking(true).unwrap();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask_to_attach(&client, number, None, "", &theirs));
            while !asking.is_finished() {
                server.step().unwrap();
            }
            asking.join().unwrap().unwrap();
        });
        ours
    };
    let receiver = attach(&mut server, 9);
    let mut senders = [(2u8, 60000), (3, 9000), (4, 1500)].map(|(number, bytes)| {
        let frames = between(number, 9, bytes).repeat(2 + 300_000 / bytes);
        (attach(&mut server, number), frames, 0)
    });
    let (mut come, mut shares) = (Vec::new(), [0usize; 3]);
    for _ in 0..2000 {
        for (cable, frames, at) in &mut senders {
            while let Ok(count) = cable.write(&frames[*at..]) {
                *at = (*at + count) % frames.len();
            }
        }
        server.step().unwrap();
        let mut bytes = [0; 1 << 17];
        while let Ok(count) = (&receiver).read(&mut bytes) {
            come.extend_from_slice(&bytes[..count]);
        }
        let mut start = 0;
        while let Some(prefix) = come[start..].first_chunk::<4>() {
            let length = 4 + u32::from_be_bytes(*prefix) as usize;
            let Some(frame) = come[start..].get(..length) else { break };
            shares[usize::from(frame[4 + 11]) - 2] += length;
            start += length;
        }
        come.drain(..start);
    }
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    println!("bytes of the three senders: {shares:?}");
    assert!(*most > 10_000_000 && *least as f64 >= 0.9 * *most as f64, "{shares:?}");
    let _ = std::fs::remove_file(path);
}

#[test]
fn what_is_no_request_is_refused() {
    let network = Network::new();
    let client = network.client();
    let refused = client.ask(&Request::Ports { from: 0 }, &[]);
    assert!(matches!(refused, Ok(Reply::Ports(ports)) if ports.len() == 1));
    let text = "tx drop\n".repeat(300);
    let request = Request::SetRules { name: "uplink".into(), text };
    let refused = network.ask(&request).unwrap_err();
    assert!(refused.contains("256"), "{refused}");
    let text = "#".repeat(100_000);
    let refused = network.ask(&Request::SetRules { name: "uplink".into(), text }).unwrap_err();
    assert!(refused.contains("longer"), "{refused}");
}

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::limits::*;
use super::operation::*;
use super::shutdown::{DEAF, DONE};
use super::*;

const GUEST: u32 = 3;

/// What the guest holds, if a test says nothing else.
const ROOM: u32 = 1 << 20;

/// A server, the guest's end of its cable, and a place for paths.
struct Bench {
    server: Server,
    cable: UnixStream,
    received: Vec<u8>,
    path: PathBuf,
}

impl Bench {
    fn new() -> Bench {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("biv-sockets-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        let (cable, theirs) = UnixStream::pair().unwrap();
        cable.set_nonblocking(true).unwrap();
        let server = Server::new(theirs.into(), GUEST, listener, path.clone()).unwrap();
        Bench { server, cable, received: Vec::new(), path }
    }

    fn turn(&mut self) {
        for _ in 0..8 {
            self.server.look().unwrap();
        }
    }

    /// The guest says something.
    fn say(&mut self, header: Header, data: &[u8]) {
        let header = Header { length: data.len() as u32, ..header };
        let packet = [&header.bytes(GUEST.into(), 2)[..], data].concat();
        for piece in packet.chunks(4096) {
            while self.cable.write_all(piece).is_err() {
                self.turn();
            }
            self.turn();
        }
    }

    /// What the guest hears.
    fn heard(&mut self) -> Vec<(Header, Vec<u8>)> {
        let mut packets = Vec::new();
        loop {
            self.turn();
            let mut bytes = vec![0; 1 << 20];
            let count = self.cable.read(&mut bytes).unwrap_or(0);
            self.received.extend(&bytes[..count]);
            while let Some(header) = self.received.first_chunk().map(Header::parse) {
                let end = HEADER_BYTES + header.length as usize;
                if self.received.len() < end {
                    break;
                }
                packets.push((header, self.received[HEADER_BYTES..end].to_vec()));
                self.received.drain(..end);
            }
            if count == 0 {
                return packets;
            }
        }
    }

    /// The operations that the guest hears.
    fn operations(&mut self) -> Vec<u16> {
        self.heard().iter().map(|(header, _)| header.operation).collect()
    }

    fn program(&self, line: &str) -> UnixStream {
        let mut program = UnixStream::connect(&self.path).unwrap();
        program.set_nonblocking(true).unwrap();
        program.write_all(line.as_bytes()).unwrap();
        program
    }

    /// A program that is connected to port 1024 of the guest's, and a header to it.
    fn connected(&mut self, room: u32) -> (UnixStream, Header) {
        let mut program = self.program("CONNECT 1024\n");
        let heard = self.heard();
        let [(request, _)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((request.operation, request.to, request.room), (REQUEST, 1024, 128 << 10));
        let to = Header { from: 1024, to: request.from, room, ..Header::default() };
        self.say(Header { operation: RESPONSE, ..to }, &[]);
        let (line, _) = read(&mut program);
        assert_eq!(line, format!("OK {}\n", request.from).as_bytes());
        (program, to)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What a program reads, and whether that was all.
fn read(program: &mut UnixStream) -> (Vec<u8>, bool) {
    let (mut all, mut bytes) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match program.read(&mut bytes) {
            Ok(0) => return (all, true),
            Ok(count) => all.extend(&bytes[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return (all, false),
            Err(_) => return (all, true),
        }
    }
}

#[test]
fn a_program_talks_to_the_guest() {
    let mut bench = Bench::new();
    let (mut program, to) = bench.connected(ROOM);
    bench.say(Header { operation: DATA, ..to }, b"from the guest");
    assert_eq!(read(&mut program), (b"from the guest".to_vec(), false));
    program.write_all(b"from the host").unwrap();
    let heard = bench.heard();
    let [(header, data)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((header.operation, header.taken, &data[..]), (DATA, 14, &b"from the host"[..]));
    bench.say(Header { operation: CREDIT_REQUEST, ..to }, &[]);
    assert_eq!(bench.operations(), [CREDIT_UPDATE]);
}

#[test]
fn the_guest_talks_to_whoever_listens_for_its_port() {
    let mut bench = Bench::new();
    let to = Header { from: 5000, to: 77, room: ROOM, ..Header::default() };
    bench.say(Header { operation: REQUEST, ..to }, &[]);
    assert_eq!(bench.operations(), [RESET], "nobody listens");
    let path = PathBuf::from(format!("{}_77", bench.path.display()));
    let listener = UnixListener::bind(&path).unwrap();
    bench.say(Header { operation: REQUEST, ..to }, &[]);
    assert_eq!(bench.operations(), [RESPONSE]);
    let mut program = listener.accept().unwrap().0;
    program.set_nonblocking(true).unwrap();
    bench.say(Header { operation: DATA, ..to }, b"hello");
    assert_eq!(read(&mut program).0, b"hello");
    bench.say(Header { operation: REQUEST, ..to }, &[]);
    assert_eq!(bench.operations(), [RESET], "it has that connection already");
    assert!(read(&mut program).1);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn who_asks_for_nothing_that_there_is_is_dismissed() {
    let mut bench = Bench::new();
    for line in ["HELLO\n", "CONNECT\n", "CONNECT x\n", "CONNECT -1\n", "CONNECT 4294967296\n"] {
        let mut program = bench.program(line);
        bench.turn();
        assert!(read(&mut program).1, "{line}");
    }
    let mut program = bench.program(&"x".repeat(100));
    bench.turn();
    assert!(read(&mut program).1);
    let mut program = bench.program("CONNECT 9\n");
    let (request, _) = bench.heard().remove(0);
    bench.say(Header { from: 9, to: request.from, operation: RESET, ..Header::default() }, &[]);
    assert_eq!(read(&mut program), (vec![], true), "nobody listens in the guest");
    assert_eq!(bench.server.connections(), 0);
}

#[test]
fn the_guest_is_sent_no_more_than_it_has_room_for() {
    let mut bench = Bench::new();
    let (mut program, mut to) = bench.connected(10_000);
    program.write_all(&[b'x'; 25_000]).unwrap();
    let mut got = 0;
    let mut asked = 0;
    for _ in 0..3 {
        for (header, data) in bench.heard() {
            got += data.len();
            asked += usize::from(header.operation == CREDIT_REQUEST);
        }
        assert!(got <= to.taken as usize + 10_000, "{got} bytes");
        to.taken = got as u32;
        bench.say(Header { operation: CREDIT_UPDATE, ..to }, &[]);
    }
    assert_eq!((got, asked), (25_000, 2));
    // One that says it has read what it was not sent gets nothing.
    bench.say(Header { operation: CREDIT_UPDATE, taken: to.taken + 99, ..to }, &[]);
    program.write_all(b"more").unwrap();
    assert!(bench.heard().iter().all(|(header, _)| header.operation == CREDIT_REQUEST));
}

#[test]
fn a_program_that_does_not_read_makes_only_its_guest_wait() {
    let mut bench = Bench::new();
    let (mut slow, to_slow) = bench.connected(ROOM);
    let (mut quick, to_quick) = bench.connected(ROOM);
    let mut sent = 0_u32;
    // What is in the socket counts as read.
    let taken = |bench: &mut Bench| {
        bench.say(Header { operation: CREDIT_REQUEST, ..to_slow }, &[]);
        bench.heard().last().map_or(0, |(header, _)| header.taken)
    };
    while sent - taken(&mut bench) + 8192 <= CONNECTION_BUFFER_BYTES as u32 {
        bench.say(Header { operation: DATA, ..to_slow }, &[b's'; 8192]);
        sent += 8192;
        assert!(sent < 64 << 20, "it takes everything");
    }
    bench.say(Header { operation: DATA, ..to_quick }, b"quick");
    assert_eq!(read(&mut quick).0, b"quick");
    let (mut all, mut updates) = (0, 0);
    while all < sent as usize {
        all += read(&mut slow).0.len();
        updates += bench.operations().iter().filter(|what| **what == CREDIT_UPDATE).count();
    }
    assert!(all == sent as usize && updates > 0);
    // One that sends more than it may is reset.
    for _ in 0..(64 << 20) / 8192 {
        bench.say(Header { operation: DATA, ..to_slow }, &[b's'; 8192]);
        if bench.operations().contains(&RESET) {
            return;
        }
    }
    panic!("everything was taken");
}

#[test]
fn a_guest_that_closes_has_said_everything() {
    let mut bench = Bench::new();
    let (mut program, to) = bench.connected(ROOM);
    bench.say(Header { operation: DATA, ..to }, b"last words");
    bench.say(Header { operation: SHUTDOWN, flags: DONE, ..to }, &[]);
    assert_eq!(read(&mut program), (b"last words".to_vec(), true));
    // The other way is open.
    program.write_all(b"answer").unwrap();
    assert_eq!(bench.operations(), [DATA]);
    bench.say(Header { operation: SHUTDOWN, flags: DEAF, ..to }, &[]);
    assert_eq!(bench.operations(), [RESET], "it is closed both ways");
    assert_eq!(bench.server.connections(), 0);
}

#[test]
fn a_program_that_closes_is_gone_when_the_guest_has_heard_it() {
    let mut bench = Bench::new();
    let (mut program, to) = bench.connected(ROOM);
    program.write_all(b"last words").unwrap();
    program.shutdown(std::net::Shutdown::Write).unwrap();
    let heard = bench.heard();
    assert_eq!(heard[0].1, b"last words");
    assert_eq!((heard[1].0.operation, heard[1].0.flags), (SHUTDOWN, DONE));
    bench.say(Header { operation: DATA, ..to }, b"answer");
    assert_eq!(read(&mut program), (b"answer".to_vec(), false));
    drop(program);
    bench.say(Header { operation: DATA, ..to }, b"to nobody");
    let (header, _) = bench.heard().remove(0);
    assert_eq!((header.operation, header.flags), (SHUTDOWN, DONE | DEAF));
    bench.say(Header { operation: RESET, ..to }, &[]);
    assert_eq!((bench.operations(), bench.server.connections()), (vec![], 0));
    let (program, to) = bench.connected(ROOM);
    drop(program);
    let (header, _) = bench.heard().remove(0);
    assert_eq!((header.operation, header.flags), (SHUTDOWN, DONE | DEAF), "it went at once");
    bench.say(Header { operation: SHUTDOWN, flags: DONE | DEAF, ..to }, &[]);
    assert_eq!(bench.operations(), [RESET]);
}

#[test]
fn a_driver_that_begins_is_connected_to_nobody() {
    let mut bench = Bench::new();
    let (mut program, to) = bench.connected(ROOM);
    bench.say(Header::default(), &[]);
    assert!(read(&mut program).1);
    bench.say(Header { operation: DATA, ..to }, b"x");
    assert_eq!(bench.operations(), [RESET]);
}

#[test]
fn there_is_an_end_of_connections() {
    let mut bench = Bench::new();
    let programs: Vec<_> = (0..100).map(|_| bench.program("")).collect();
    bench.turn();
    assert_eq!(bench.server.connections(), 100);
    drop(programs);
    bench.turn();
    assert_eq!(bench.server.connections(), 0);
    // A guest that does not hear its resets costs no more than a limit.
    let to = Header { from: 1, to: 2, operation: DATA, ..Header::default() };
    let packet = to.bytes(GUEST.into(), 2).repeat(1000);
    for _ in 0..200 {
        while bench.cable.write_all(&packet).is_err() {
            bench.turn();
        }
        bench.turn();
    }
    assert!(bench.server.look().unwrap());
}

/// A generator for hostile bytes (xorshift64*), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

#[test]
fn hostile_packets_are_survived() {
    let mut random = Random(0x1bad_b002);
    for _ in 0..20 {
        let mut bench = Bench::new();
        let path = PathBuf::from(format!("{}_7", bench.path.display()));
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (mut program, to) = bench.connected(ROOM);
        let mut accepted = Vec::new();
        for _ in 0..300 {
            let ours = random.below(2) == 0;
            let header = Header {
                from: if ours { to.from } else { random.below(3) as u32 },
                to: if ours { to.to } else { 7 },
                operation: 1 + random.below(8) as u16,
                flags: random.below(4) as u32,
                room: random.below(1 << 32) as u32,
                taken: random.below(1 << 32) as u32,
                length: 0,
            };
            let length = if header.operation == DATA { random.below(3000) as usize } else { 0 };
            bench.say(header, &vec![b'x'; length]);
            accepted.extend(listener.accept());
            let _ = program.write_all(b"from the host");
            read(&mut program);
            bench.heard();
            assert!(bench.server.connections() <= MAX_CONNECTIONS);
        }
        std::fs::remove_file(path).unwrap();
        // What is no packet ends it.
        let wrong = Header { length: 1 << 20, operation: DATA, ..to };
        bench.cable.write_all(&wrong.bytes(GUEST.into(), 2)).unwrap();
        assert!(!(0..8).all(|_| bench.server.look().unwrap()));
    }
}

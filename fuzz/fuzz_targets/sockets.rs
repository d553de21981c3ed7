//! The process that is the other end of a guest's virtio sockets, with the guest as an adversary: packets of
//! any kind, among them some about a connection that a program has asked for.

#![no_main]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use sockets::{Header, Server, limits};

const GUEST: u32 = 3;

/// The ports of the first connections that programs ask for, and the guest's port that they ask for.
const FIRST: u32 = 1 << 30;
const ASKED: u32 = 9;

#[derive(Debug, Arbitrary)]
enum Step {
    /// A packet, about something that there is or may be.
    Packet { of: u8, operation: u8, flags: u8, room: u32, taken: u32, bytes: Vec<u8> },
    /// Bytes on the cable.
    Raw(Vec<u8>),
    /// A program asks for a connection, or for something else.
    Ask { sense: bool, bytes: Vec<u8> },
    /// Programs write, and read.
    Talk(Vec<u8>),
    /// A program goes.
    Leave,
    /// The guest takes what is there for it.
    Take,
}

struct Bench {
    server: Server,
    cable: UnixStream,
    programs: Vec<UnixStream>,
    /// It has been told nonsense.
    is_over: bool,
}

/// Where the server listens, and a listener for port 7 of the host's.
fn path() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("biv-fuzz-sockets-{}", std::process::id()))
}

fn listen(path: &std::path::Path) -> UnixListener {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).expect("there is room");
    listener.set_nonblocking(true).expect("it can be");
    listener
}

impl Bench {
    fn new() -> Bench {
        let (cable, theirs) = UnixStream::pair().expect("a socket");
        cable.set_nonblocking(true).expect("it can be");
        let server = Server::new(theirs.into(), GUEST, listen(&path()), path());
        let server = server.expect("descriptors");
        Bench { server, cable, programs: Vec::new(), is_over: false }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Packet { of, operation, flags, room, taken, bytes } => {
                let (from, to) = match of % 4 {
                    0 => (1, 7),
                    1 => (u32::from(of), 8),
                    _ => (ASKED, FIRST + u32::from(of) % 8),
                };
                let operation = u16::from(operation % 10);
                let length = bytes.len() as u32;
                let header =
                    Header { from, to, length, operation, flags: flags.into(), room, taken };
                let _ = self.cable.write_all(&header.bytes(GUEST.into(), 2));
                let _ = self.cable.write_all(&bytes);
            }
            Step::Raw(bytes) => drop(self.cable.write_all(&bytes)),
            Step::Ask { sense, bytes } => {
                let Ok(mut program) = UnixStream::connect(path()) else { return };
                let _ = program.set_nonblocking(true);
                if sense {
                    let _ = program.write_all(format!("CONNECT {ASKED}\n").as_bytes());
                }
                let _ = program.write_all(&bytes);
                self.programs.push(program);
            }
            Step::Talk(bytes) => {
                for program in &mut self.programs {
                    let _ = program.write_all(&bytes);
                    let _ = program.read(&mut [0; 4096]);
                }
            }
            Step::Leave => drop(self.programs.pop()),
            Step::Take => while matches!(self.cable.read(&mut [0; 65536]), Ok(1..)) {},
        }
    }
}

thread_local! {
    static ACCEPTING: RefCell<Option<UnixListener>> = const { RefCell::new(None) };
}

fuzz_target!(|steps: Vec<Step>| {
    ACCEPTING.with_borrow_mut(|accepting| {
        let place = std::path::PathBuf::from(format!("{}_7", path().display()));
        let accepting = accepting.get_or_insert_with(|| listen(&place));
        let mut bench = Bench::new();
        for step in steps {
            bench.take(step);
            if let Ok((program, _)) = accepting.accept() {
                // It would wait for the guest, who is us.
                program.set_nonblocking(true).expect("it can be");
                bench.programs.push(program);
            }
            if !bench.is_over {
                bench.is_over = !bench.server.look().expect("poll works");
            }
            assert!(bench.server.connections() <= limits::MAX_CONNECTIONS);
        }
        while accepting.accept().is_ok() {}
    });
});

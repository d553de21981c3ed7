//! A router's process with adversaries at its cables, and any bytes as requests: whatever they send, each round ends,
//! and nobody gets what is no frame.

#![no_main]

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, bind, connect, listen, recv, send, sendmsg, socket_with,
};
use vfr::{Attach, Plan, Request, Server};

#[derive(Debug, Arbitrary)]
enum Step {
    /// Bytes on a cable.
    Bytes { cable: u8, bytes: Vec<u8> },
    /// A frame of a cable's own, for another.
    Frame { from: u8, to: u8, kind: u8, bytes: Vec<u8> },
    /// Bytes as a request.
    Request { bytes: Vec<u8> },
    /// Rules.
    Rules { cable: u8, text: String },
    /// A cable is cut, and another attached.
    Again { cable: u8, rate: Option<u32> },
    /// What has come is taken.
    Take { cable: u8 },
}

const CABLES: u8 = 3;
/// Rounds after each step: what a step brings about is done in fewer.
const ROUNDS: u32 = 4;

struct Network {
    server: Server,
    control: OwnedFd,
    cables: Vec<UnixStream>,
}

fn name(number: u8) -> String {
    format!("vif{}", number % CABLES)
}

impl Network {
    fn new() -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = socket_with(family, kind, flags, None).expect("a socket");
        let place = format!("bivouac-fuzz-{}", std::process::id());
        let place = SocketAddrUnix::new_abstract_name(place.as_bytes()).expect("a name");
        bind(&listener, &place).expect("nobody else has it");
        listen(&listener, 4).expect("it is bound");
        let (uplink, theirs) = UnixStream::pair().expect("a socket");
        let plan = Plan {
            control: listener,
            uplink: Some(theirs.into()),
            uplink_mac: [2, 0, 0, 0, 0, 0xff],
            gateway: [10, 77, 0, 1].into(),
            bits: 24,
        };
        let server = Server::new(plan).expect("it makes sense");
        let control = socket_with(family, kind, flags, None).expect("a socket");
        connect(&control, &place).expect("it listens");
        uplink.set_nonblocking(true).expect("a socket can");
        let mut network = Self { server, control, cables: Vec::new() };
        for number in 0..CABLES {
            let cable = network.attach(number, None);
            network.cables.push(cable);
        }
        network.cables.push(uplink);
        network
    }

    fn attach(&mut self, number: u8, rate: Option<u64>) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("a socket");
        ours.set_nonblocking(true).expect("a socket can");
        let attach = Attach {
            name: name(number),
            mac: [2, 0, 0, 0, 0, number % CABLES],
            address: [10, 77, 0, 2 + number % CABLES].into(),
            bits: 24,
            rate,
            rules: String::new(),
        };
        let text = serde_json::to_vec(&Request::Attach(attach)).expect("it has a text");
        let files = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        let pieces = [std::io::IoSlice::new(&text)];
        let _ = sendmsg(&self.control, &pieces, &mut ancillary, SendFlags::NOSIGNAL);
        self.rounds();
        ours
    }

    fn rounds(&mut self) {
        for _ in 0..ROUNDS {
            self.server.step().expect("the host lets it wait");
        }
        let mut answer = [0; 1 << 16];
        while recv(&self.control, &mut answer[..], RecvFlags::DONTWAIT).is_ok_and(|it| it.0 > 0) {}
    }

    fn ask(&mut self, bytes: &[u8]) {
        let _ = send(&self.control, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        self.rounds();
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Bytes { cable, bytes } => self.write(cable, &bytes),
            Step::Frame { from, to, kind, bytes } => {
                let kinds = [[8, 0], [8, 6], [0x86, 0xdd], [kind, kind]];
                let mac = |number: u8| [2, 0, 0, 0, 0, number % CABLES];
                let kind = kinds[usize::from(kind) % kinds.len()];
                let frame = [&mac(to)[..], &mac(from), &kind, &bytes].concat();
                let length = (frame.len() as u32).to_be_bytes();
                self.write(from % CABLES, &[&length[..], &frame].concat());
            }
            Step::Request { bytes } if bytes.is_empty() => {}
            Step::Request { bytes } => self.ask(&bytes),
            Step::Rules { cable, text } => {
                let request = Request::SetRules { name: name(cable), text };
                self.ask(&serde_json::to_vec(&request).expect("it has a text"));
            }
            Step::Again { cable, rate } => {
                let new = self.attach(cable, rate.map(u64::from));
                self.cables[usize::from(cable % CABLES)] = new;
            }
            Step::Take { cable } => {
                let number = usize::from(cable) % self.cables.len();
                let _ = self.cables[number].read(&mut vec![0; 1 << 20]);
            }
        }
        self.rounds();
    }

    fn write(&mut self, cable: u8, bytes: &[u8]) {
        let number = usize::from(cable) % self.cables.len();
        let _ = self.cables[number].write(bytes);
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let mut network = Network::new();
    steps.into_iter().take(64).for_each(|step| network.carry_out(step));
});

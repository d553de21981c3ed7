//! A file server with a guest's kernel that asks it anything, over the sockets that it really has, by FUSE or by 9p.

#![no_main]

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::LazyLock;

use files::{Connection, Owners, Range, Share, client};
use host::GuestMemory;
use libfuzzer_sys::fuzz_target;
use vm_memory::{Bytes, GuestAddress};

const MEMORY_BYTES: u64 = 1 << 20;
const ANSWER: u64 = 0x8_0000;
const HEADER_BYTES: usize = 40;

/// Requests whose numbers could make the server fill the host's disk: SETATTR, WRITE, FALLOCATE,
/// COPY_FILE_RANGE. Theirs are below 16 MiB.
const FILLING: [u8; 4] = [4, 16, 43, 47];

/// The share that is asked by 9p, and where a message of 9p says what it is and which file it means.
const NINE: usize = 2;
const NINE_KIND: usize = 4;
const NINE_FID: usize = 7;

/// Bytes of a message before what is left of it to choose.
const NINE_HEADER_BYTES: usize = 11;

/// Where such messages have numbers that could fill the host's disk: the offset of a Twrite, the size of a Tsetattr.
const NINE_FILLING: [(u8, usize); 2] = [(118, 11), (26, 27)];

struct Rig {
    memory: GuestMemory,
    connections: Vec<Connection>,
    outside: PathBuf,
    _control: std::os::fd::OwnedFd,
}

static RIG: LazyLock<Rig> = LazyLock::new(|| {
    let outside = std::env::temp_dir().join(format!("biv-fuzz-files-{}", std::process::id()));
    std::fs::create_dir_all(outside.join("share/below")).expect("there is room");
    std::fs::write(outside.join("share/file"), "contents").expect("there is room");
    let memory = GuestMemory::new(&[(0, MEMORY_BYTES)]).expect("there is memory");
    let (control, theirs) = client::pair().expect("there are sockets");
    std::thread::spawn(move || files::server::serve(&theirs, false, &[]));
    let share = |owners, is_nine| Share {
        directory: File::open(outside.join("share")).expect("it is there").into(),
        allows_privileges: false,
        allows_unknown_kinds: false,
        is_writable: true,
        hides_secrets: true,
        is_exclusive: true,
        is_written_back: true,
        without_attributes: false,
        may_be_another: false,
        is_nine,
        validity_milliseconds: 1000,
        host_owner: (0, 0),
        guest_owner: (1000, 1000),
        owners,
    };
    let regions: Vec<_> =
        memory.regions().iter().map(|part| (part.guest, part.size, part.file_offset)).collect();
    let memory_file = memory.file().as_fd();
    let shares =
        [share(Owners::OfHost, false), share(Owners::Recorded, false), share(Owners::OfHost, true)];
    let connections =
        client::introduce(control.as_fd(), memory_file, &regions, &shares).expect("told");
    Rig { memory, connections, outside, _control: control }
});

impl Rig {
    fn ask(&self, share: usize, request: &[u8]) {
        let mut request = request.to_vec();
        request.resize(request.len().max(HEADER_BYTES), 0);
        if FILLING.contains(&request[4]) {
            for number in request[HEADER_BYTES..].chunks_mut(8).filter(|number| number.len() == 8) {
                number[3..].fill(0);
            }
        }
        self.send(share, &request);
    }

    /// The same by 9p, about one of a few files; mostly as long as it says.
    fn ask_nine(&self, message: &[u8]) {
        let mut message = message.to_vec();
        message.resize(message.len().max(NINE_HEADER_BYTES), 0);
        if message[0] % 16 != 0 {
            let length = message.len() as u32;
            message[..4].copy_from_slice(&length.to_le_bytes());
        }
        let fid = u32::from(message[NINE_FID] % 4);
        message[NINE_FID..NINE_HEADER_BYTES].copy_from_slice(&fid.to_le_bytes());
        for (kind, at) in NINE_FILLING {
            if message[NINE_KIND] == kind && message.len() >= at + 8 {
                message[at + 3..at + 8].fill(0);
            }
        }
        self.send(NINE, &message);
    }

    /// A message of 9p as it should be.
    fn say_nine(&self, kind: u8, body: &[u8]) {
        let length = (7 + body.len()) as u32;
        self.send(NINE, &[&length.to_le_bytes()[..], &[kind, 1, 0], body].concat());
    }

    fn send(&self, share: usize, request: &[u8]) {
        self.memory.map().write_slice(request, GuestAddress(0)).expect("there is room");
        let readable = [Range { address: 0, bytes: request.len() as u64 }];
        let writable = [Range { address: ANSWER, bytes: 0x1_0000 }];
        let connection = &self.connections[share];
        let sent = connection.submit(7, readable.into_iter(), writable.into_iter(), false);
        assert!(sent.expect("the server lives"), "there is room for one request");
        let reply = connection.receive().expect("the server lives").expect("it answers");
        assert_eq!(reply.token, 7);
        assert!(reply.bytes <= 0x1_0000, "{reply:?}");
    }
}

/// A kernel that begins, and asks for these.
fn by_fuse(rig: &Rig, share: usize, requests: &[Vec<u8>]) {
    // INIT, version 7.36, with everything that a kernel could have.
    let mut hello = vec![0; HEADER_BYTES + 16];
    hello[4] = 26;
    hello[HEADER_BYTES] = 7;
    hello[HEADER_BYTES + 4] = 36;
    hello[HEADER_BYTES + 12..].fill(0xff);
    rig.ask(share, &hello);
    for request in requests.iter().take(32) {
        rig.ask(share, &request[..request.len().min(4096)]);
    }
}

fn by_nine(rig: &Rig, requests: &[Vec<u8>]) {
    // The version; the root is file 0, and 1 and 2 are a file and a directory in it.
    rig.say_nine(100, b"\0\0\x01\0\x08\x009P2000.L");
    rig.say_nine(104, b"\0\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\0");
    rig.say_nine(110, b"\0\0\0\0\x01\0\0\0\x01\0\x04\0file");
    rig.say_nine(110, b"\0\0\0\0\x02\0\0\0\x01\0\x05\0below");
    for request in requests.iter().take(32) {
        rig.ask_nine(&request[..request.len().min(4096)]);
    }
}

fuzz_target!(|asked: (u8, Vec<Vec<u8>>)| {
    let (rig, (share, requests)) = (&*RIG, asked);
    match usize::from(share) % 3 {
        NINE => by_nine(rig, &requests),
        share => by_fuse(rig, share, &requests),
    }
    let names = std::fs::read_dir(&rig.outside).expect("it is there").count();
    assert_eq!(names, 1, "something is beside the share");
});

//! A file server with a guest's kernel that asks it anything, over the sockets that it really has.

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
    let share = |owners| Share {
        directory: File::open(outside.join("share")).expect("it is there").into(),
        allows_privileges: false,
        allows_unknown_kinds: false,
        is_writable: true,
        hides_secrets: true,
        is_exclusive: true,
        is_written_back: true,
        without_attributes: false,
        may_be_another: false,
        is_nine: false,
        validity_milliseconds: 1000,
        host_owner: (0, 0),
        guest_owner: (1000, 1000),
        owners,
    };
    let regions: Vec<_> =
        memory.regions().iter().map(|part| (part.guest, part.size, part.file_offset)).collect();
    let memory_file = memory.file().as_fd();
    let shares = [share(Owners::OfHost), share(Owners::Recorded)];
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
        self.memory.map().write_slice(&request, GuestAddress(0)).expect("there is room");
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

fuzz_target!(|asked: (bool, Vec<Vec<u8>>)| {
    let (rig, (is_recorded, requests)) = (&*RIG, asked);
    let share = usize::from(is_recorded);
    // INIT, version 7.36, with everything that a kernel could have.
    let mut hello = vec![0; HEADER_BYTES + 16];
    hello[4] = 26;
    hello[HEADER_BYTES] = 7;
    hello[HEADER_BYTES + 4] = 36;
    hello[HEADER_BYTES + 12..].fill(0xff);
    rig.ask(share, &hello);
    for request in requests.iter().take(32) {
        let request = &request[..request.len().min(4096)];
        rig.ask(share, request);
    }
    let names = std::fs::read_dir(&rig.outside).expect("it is there").count();
    assert_eq!(names, 1, "something is beside the share");
});

//! Files that are taken for images.

use std::fs::File;
use std::os::unix::fs::FileExt;

use checkpoint::state::inet::{Connection, Group, Inet, InetRole};
use checkpoint::state::sockets::{
    Message, Protocol, Socket, SocketOption, Unix, UnixKind, UnixRole,
};
use checkpoint::state::{
    Bytes, Description, Ipc, IpcName, Lock, LockOwner, LockedBytes, MessageQueue, OpenFile, Owner,
    PathWatch, Queues, Segment, Semaphores, Source, State, Terminal, TerminalEnd,
};
use checkpoint::{Compression, Error, Image, Pages, Slots, Writer};

use crate::support;

/// An image of a program that waits, as bytes; none where it cannot be made, which is said.
pub fn waiting(name: &str) -> Option<Vec<u8>> {
    let directory = support::Directory::new(name);
    let program = support::compile(&directory, "still")?;
    let subject = support::Subject::start(&directory, &program)?;
    let mut writer = Writer::new(file(&[]), Compression::Fast);
    let state =
        subject.freeze().dump(&mut writer, &Slots::new()).unwrap_or_else(|error| panic!("{error}"));
    let image = writer.finish(state).expect("there is memory");
    let mut bytes = vec![0; image.metadata().expect("it is open").len() as usize];
    image.read_exact_at(&mut bytes, 0).expect("it is there");
    Some(bytes)
}

pub fn file(bytes: &[u8]) -> File {
    let file = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(file.expect("there is memory"));
    file.write_all_at(bytes, 0).expect("there is memory");
    file
}

/// Open an image and read all its pages.
fn read(bytes: &[u8]) -> Result<usize, Error> {
    let image = Image::open(file(bytes))?;
    image.pages().try_fold(0, |sum, pages| Ok(sum + pages?.1.len()))
}

#[test]
fn damage_is_found() {
    let Some(bytes) = waiting("damage") else { return };
    let pages = read(&bytes).unwrap_or_else(|error| panic!("{error}"));
    assert!(pages > 16 << 10, "there are {pages} bytes of pages");
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..2000 {
        let mut damaged = bytes.clone();
        // Between header and pieces there is nothing that matters.
        let at = match random.bool() {
            true => random.usize(..48),
            false => random.usize(4096..bytes.len()),
        };
        // The minor version is nobody's business.
        if (8..12).contains(&at) {
            continue;
        }
        damaged[at] ^= 1 << random.u32(..8);
        let result = read(&damaged);
        assert!(matches!(result, Err(Error::Image(_))), "bit {at}: {result:?}");
    }
    for cut in (0..bytes.len()).step_by(997) {
        assert!(read(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn an_image_that_was_not_finished_is_none() {
    let file = file(&[]);
    let mut writer =
        Writer::new(file.try_clone().expect("there are descriptors"), Compression::None);
    writer.put(Owner::Process(2), 0x1000, &[1; 4096]).expect("there is memory");
    drop(writer);
    let result = Image::open(file);
    assert!(matches!(result, Err(Error::Image(_))), "{result:?}");
}

/// A terminal that can be.
pub fn terminal() -> Terminal {
    Terminal {
        index: 0,
        slot: Some("console".to_owned()),
        multiplexer: "/dev/ptmx".to_owned(),
        settings: Bytes(vec![0; 44]),
        size: [0; 4],
        locked: false,
        packets: false,
        exclusive: false,
        opened: true,
        queues: Queues::default(),
        session: 0,
        foreground: 0,
        without: Vec::new(),
    }
}

/// What is made of an image by changing what it says.
fn changed(original: &Image, change: &dyn Fn(&mut State)) -> Result<Image, Error> {
    let mut state = original.state().clone();
    change(&mut state);
    let written = Writer::new(file(&[]), Compression::None).finish(state);
    Image::open(written.expect("there is memory"))
}

fn check_refused(original: &Image, what: &str, change: &dyn Fn(&mut State)) {
    let result = changed(original, change);
    assert!(matches!(result, Err(Error::Image(_))), "{what}: {result:?}");
}

#[test]
fn images_that_say_what_cannot_be_are_refused() {
    let Some(bytes) = waiting("claims") else { return };
    let original = Image::open(file(&bytes)).unwrap_or_else(|error| panic!("{error}"));
    let check = |what: &str, change: &dyn Fn(&mut State)| check_refused(&original, what, change);
    check("nobody", &|state| state.processes.clear());
    check("PID 1", &|state| state.processes[0].pid = 1);
    check("twins", &|state| state.processes.push(state.processes[0].clone()));
    check("a parent that is not there", &|state| state.processes[0].parent = 77);
    check("a relative path", &|state| state.processes[0].directory = "tmp".to_owned());
    check("a NUL", &|state| state.processes[0].memory.program.push('\0'));
    check("a description too few", &|state| state.descriptions.clear());
    check("the kernel's half", &|state| {
        let mappings = &mut state.processes[0].memory.mappings;
        mappings.last_mut().expect("it has some").end = 1 << 63;
    });
    check("mappings that overlap", &|state| {
        let mappings = &mut state.processes[0].memory.mappings;
        mappings[1].start = mappings[0].start;
    });
    check("a signal that there is not", &|state| {
        let mut signal = vec![0; 128];
        signal[0] = 65;
        state.processes[0].pending.push(checkpoint::state::Bytes(signal));
    });
    check("no extended state", &|state| {
        state.processes[0].threads[0].extended.legacy = checkpoint::state::Bytes(Vec::new());
    });
}

#[test]
fn files_and_locks_that_cannot_be_are_refused() {
    let Some(bytes) = waiting("files") else { return };
    let original = Image::open(file(&bytes)).unwrap_or_else(|error| panic!("{error}"));
    let check = |what: &str, change: &dyn Fn(&mut State)| check_refused(&original, what, change);
    check("a named pipe that is not there", &|state| {
        let file = OpenFile::NamedPipe { index: 0, waits: false };
        state.descriptions.push(Description { flags: 0, file });
    });
    check("a watched file without a path", &|state| {
        let (pid, number) = (state.processes[0].pid, 1);
        let watches = vec![PathWatch { number, path: "file".to_owned(), events: 2 }];
        let file = OpenFile::Notifications { pid, watches };
        state.descriptions.push(Description { flags: 0, file });
    });
    check("a lock of a description that is not there", &|state| {
        let lock = Lock { description: 999, owner: LockOwner::Whole, exclusive: true };
        state.locks.push(lock);
    });
    check("a lock that ends before it begins", &|state| {
        let bytes = LockedBytes { start: 5, last: Some(4) };
        let owner = LockOwner::Description { bytes };
        state.locks.push(Lock { description: 0, owner, exclusive: true });
    });
    check("a lock of somebody who has not the file", &|state| {
        let bytes = LockedBytes { start: 0, last: None };
        let owner = LockOwner::Process { pid: 77, bytes };
        state.locks.push(Lock { description: 0, owner, exclusive: true });
    });
}

#[test]
fn ipc_that_cannot_be_is_refused() {
    let Some(bytes) = waiting("ipc") else { return };
    let original = Image::open(file(&bytes)).unwrap_or_else(|error| panic!("{error}"));
    let name = || IpcName { id: 7, key: 1, user: 0, group: 0, mode: 0o600 };
    let segment = |bytes| Segment { name: name(), bytes, removed: false };
    let of_segment = |segment| Ipc { segments: vec![segment], ..Ipc::default() };
    let mapping = |state: &mut State, offset| {
        let mut mapping = state.processes[0].memory.mappings[0].clone();
        mapping.shared = true;
        mapping.source = Source::Segment { id: 7, offset, writable: true };
        state.processes[0].memory.mappings[0] = mapping;
    };
    // What the following is changed from can be.
    let result = changed(&original, &|state| {
        state.ipc = Some(of_segment(segment(1 << 20)));
        mapping(state, 4096);
    });
    assert!(result.is_ok(), "{result:?}");
    let check = |what: &str, change: &dyn Fn(&mut State)| check_refused(&original, what, change);
    check("a segment of no bytes", &|state| state.ipc = Some(of_segment(segment(0))));
    check("a number that is none", &|state| {
        let name = IpcName { id: 1 << 31, ..name() };
        state.ipc = Some(of_segment(Segment { name, ..segment(1) }));
    });
    check("memory that is not there", &|state| {
        state.ipc = None;
        mapping(state, 0);
    });
    check("memory behind the end of its segment", &|state| {
        state.ipc = Some(of_segment(segment(1 << 20)));
        mapping(state, 1 << 20);
    });
    check("a semaphore that is too high", &|state| {
        let set = Semaphores { name: name(), values: vec![40_000] };
        state.ipc = Some(Ipc { semaphores: vec![set], ..Ipc::default() });
    });
    check("a message of no type", &|state| {
        let messages = vec![checkpoint::state::Message { kind: 0, bytes: Bytes(Vec::new()) }];
        let queue = MessageQueue { name: name(), limit: 16_384, messages };
        state.ipc = Some(Ipc { queues: vec![queue], ..Ipc::default() });
    });
}

#[test]
fn terminals_that_cannot_be_are_refused() {
    let Some(bytes) = waiting("terminals") else { return };
    let original = Image::open(file(&bytes)).unwrap_or_else(|error| panic!("{error}"));
    let check = |what: &str, change: &dyn Fn(&mut State)| check_refused(&original, what, change);
    check("a terminal that is not there", &|state| {
        let file = OpenFile::Terminal { index: 0, end: TerminalEnd::Slave };
        state.descriptions.push(Description { flags: 0, file });
    });
    // What the following is changed from can be.
    let result = changed(&original, &|state| state.terminals.push(terminal()));
    assert!(result.is_ok(), "{result:?}");
    check("a terminal whose session nobody leads", &|state| {
        state.terminals.push(Terminal { session: 77, ..terminal() });
    });
    check("a terminal that nobody has and that nobody gives", &|state| {
        state.terminals.push(Terminal { slot: None, ..terminal() });
    });
    check("a terminal whose settings are too short", &|state| {
        let settings = Bytes(vec![0; 43]);
        state.terminals.push(Terminal { settings, ..terminal() });
    });
    check("a terminal with too high a number", &|state| {
        state.terminals.push(Terminal { index: u32::MAX, ..terminal() });
    });
    check("a terminal in which too much waits", &|state| {
        let queues = Queues { output: Bytes(vec![0; 1 << 20]), ..Queues::default() };
        state.terminals.push(Terminal { queues, ..terminal() });
    });
    check("two terminals with one number", &|state| {
        state.terminals.extend([terminal(), terminal()]);
    });
}

#[test]
fn sockets_that_cannot_be_are_refused() {
    let Some(bytes) = waiting("claims-of-sockets") else { return };
    let original = Image::open(file(&bytes)).unwrap_or_else(|error| panic!("{error}"));
    let check = |what: &str, change: &dyn Fn(&mut State)| check_refused(&original, what, change);
    let socket = |role: UnixRole| Socket {
        options: Vec::new(),
        protocol: Protocol::Unix(Unix {
            kind: UnixKind::Stream,
            name: None,
            role,
            shutdown: 0,
            queue: Vec::new(),
            peer_is: None,
        }),
    };
    let add = |state: &mut State, role: UnixRole| {
        let file = OpenFile::Socket { index: state.sockets.len() };
        state.descriptions.push(checkpoint::state::Description { flags: 2, file });
        state.sockets.push(socket(role));
    };
    check("a socket that nobody has", &|state| state.sockets.push(socket(UnixRole::Idle)));
    check("a socket that is not there", &|state| {
        add(state, UnixRole::Idle);
        state.sockets.clear();
    });
    check("a peer that is not there", &|state| add(state, UnixRole::Connected { peer: 9 }));
    check("a peer that has no peer", &|state| {
        add(state, UnixRole::Connected { peer: 1 });
        add(state, UnixRole::Idle);
    });
    check("a socket that is its own peer", &|state| add(state, UnixRole::Connected { peer: 0 }));
    check("nobody who waits", &|state| {
        add(state, UnixRole::Listens { backlog: 4, waiting: vec![Some(7)] });
    });
    check("one that listens without a name", &|state| {
        add(state, UnixRole::Listens { backlog: 4, waiting: Vec::new() });
    });
    check("an option that there is not", &|state| {
        add(state, UnixRole::Idle);
        let value = checkpoint::state::Bytes(vec![0; 4]);
        state.sockets[0].options.push(SocketOption { level: 1, name: 3, value });
    });
    check("a message of nothing", &|state| {
        add(state, UnixRole::Left { name: None, reset: false });
        let Protocol::Unix(unix) = &mut state.sockets[0].protocol else { return };
        let bytes = checkpoint::state::Bytes::default();
        unix.queue.push(Message { bytes, from: None, by: None, files: Vec::new() });
    });
}

/// A socket of the Internet that does that.
fn internet(role: InetRole) -> Inet {
    Inet { six: false, multipath: false, name: "1.2.3.4:5".parse().ok(), role, groups: Vec::new() }
}

/// Have somebody have it open.
fn put(state: &mut State, inet: Inet) {
    let file = OpenFile::Socket { index: 0 };
    state.descriptions.push(Description { flags: 2, file });
    let (options, protocol) = (Vec::new(), Protocol::Inet(inet));
    state.sockets.push(Socket { options, protocol });
}

#[test]
fn connections_that_cannot_be_are_refused() {
    let Some(bytes) = waiting("claims-of-connections") else { return };
    let original = Image::open(file(&bytes)).unwrap_or_else(|error| panic!("{error}"));
    let check = |what: &str, change: &dyn Fn(&mut State)| check_refused(&original, what, change);
    let connection = || Connection {
        peer: "1.2.3.4:6".parse().expect("it is an address"),
        received: Bytes(Vec::new()),
        receive_next: 1,
        written: Bytes(vec![1, 2, 3]),
        write_next: 7,
        unsent: 3,
        window: [0; 5],
        segment_bytes: 1460,
        scales: Some((14, 14)),
        selective: true,
        timestamp: None,
        has_sent_all: false,
        has_received_all: false,
        ended_last: false,
    };
    let connected = |connection| internet(InetRole::Connected(Box::new(connection)));
    let result = changed(&original, &|state| put(state, connected(connection())));
    assert!(result.is_ok(), "{result:?}");
    check("a name of another family", &|state| {
        put(state, Inet { six: true, ..internet(InetRole::Idle) });
    });
    check("a connection without a name", &|state| {
        put(state, Inet { name: None, ..connected(connection()) });
    });
    check("more unsent than written", &|state| {
        put(state, connected(Connection { unsent: 4, ..connection() }));
    });
    check("a window out of bounds", &|state| {
        put(state, connected(Connection { scales: Some((15, 0)), ..connection() }));
    });
    check("segments of nothing", &|state| {
        put(state, connected(Connection { segment_bytes: 0, ..connection() }));
    });
    check("a backlog without end", &|state| {
        put(state, internet(InetRole::Listens { backlog: u32::MAX }));
    });
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let Some(bytes) = waiting("claims-of-groups") else { return };
    let original = Image::open(file(&bytes)).unwrap_or_else(|error| panic!("{error}"));
    let check = |what: &str, change: &dyn Fn(&mut State)| check_refused(&original, what, change);
    let group = |interface: &str, address: &str, sources: &[&str]| {
        let parse = |text: &&str| text.parse().expect("it is an address");
        let sources = sources.iter().map(parse).collect();
        Group { interface: interface.to_owned(), address: parse(&address), only: true, sources }
    };
    let with = |groups| Inet { groups, ..internet(InetRole::Idle) };
    let result = changed(&original, &|state| {
        put(state, with(vec![group("lo", "239.0.0.1", &["1.2.3.4"])]));
    });
    assert!(result.is_ok(), "{result:?}");
    for (what, group) in [
        ("a group that is none", group("lo", "1.2.3.4", &["1.2.3.4"])),
        ("a group of another family", group("lo", "ff02::1", &["fd00::1"])),
        ("a group at no interface", group("", "239.0.0.1", &["1.2.3.4"])),
        ("a group at an interface with a path", group("../lo", "239.0.0.1", &["1.2.3.4"])),
        ("a group of which nobody is heard", group("lo", "239.0.0.1", &[])),
        ("a sender of another family", group("lo", "239.0.0.1", &["fd00::1"])),
    ] {
        check(what, &|state| put(state, with(vec![group.clone()])));
    }
}

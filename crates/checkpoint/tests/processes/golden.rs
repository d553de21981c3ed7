//! Images of versions that were: what they say is what they said then, whatever has been added since.
//!
//! `tests/images/MAJOR.MINOR.pod` was written by the first program of that version: a small program that waits, with
//! one of each kind of thing that it does not have, and a few pages that are made up. No process can be made of it. The
//! last test below writes such an image with today's program, and keeps it as the file that `BIVOUAC_GOLDEN` names. An
//! image of a new version is put beside the others, and none is ever changed.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use checkpoint::pod::{Joined, Pod};
use checkpoint::state::inet::{Inet, InetRole};
use checkpoint::state::sockets::{Protocol, Socket, Unix, UnixKind, UnixRole};
use checkpoint::state::{
    Bytes, Description, Ipc, IpcName, Lock, LockOwner, MessageQueue, NamedPipe, Object, OpenFile,
    Owner, PathWatch, PosixQueue, Segment, Semaphores, Source, State, TerminalEnd,
};
use checkpoint::{Compression, Error, Image, Pages, Writer};
use ciborium::Value;

use crate::images::{file, terminal, waiting};

/// Where the pieces begin (`image/mod.rs`).
const PIECES_OFFSET: usize = 4096;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/images")
}

/// What is in the images of each version: it, tasks, open files, the digest of their pages.
const KNOWN: [(&str, usize, usize, &str); 1] = [("2.0.pod", 1, 15, "3fcc7b668d6a3907")];

fn golden(name: &str) -> Vec<u8> {
    fs::read(directory().join(name)).expect("it is part of the source")
}

fn open(bytes: &[u8]) -> Result<Image, Error> {
    Image::open_by(crate::reader::reader(), &file(bytes), &mut ())
}

fn digest(image: &Image) -> String {
    let mut digest = blake3::Hasher::new();
    for pages in image.pages() {
        let (run, bytes) = pages.unwrap_or_else(|error| panic!("{error}"));
        digest.update(format!("{run:?}").as_bytes()).update(&bytes);
    }
    digest.finalize().to_hex()[..16].to_owned()
}

#[test]
fn images_of_older_versions_say_what_they_said() {
    let mut names: Vec<_> = fs::read_dir(directory())
        .expect("it is part of the source")
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("a name"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, KNOWN.map(|(name, ..)| name));
    for (name, tasks, files, pages) in KNOWN {
        let image = open(&golden(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let state = image.state();
        let threads = state.processes.iter().map(|process| process.threads.len());
        assert_eq!((threads.sum(), state.descriptions.len()), (tasks, files), "{name}");
        assert_eq!(digest(&image), pages, "{name}");
        let pod = image.pod().expect("it is that of a pod");
        assert_eq!((&*pod.hostname, pod.terminal), ("golden", Some(0)), "{name}");
        for kind in kinds() {
            assert!(state.descriptions.iter().any(|it| kind(&it.file)), "{name} lacks a file");
        }
        let ipc = state.ipc.as_ref().expect("it has some");
        let counts = [ipc.segments.len(), ipc.semaphores.len(), ipc.queues.len()];
        assert_eq!(counts, [1; 3], "{name}");
        let counts = [state.terminals.len(), state.sockets.len(), state.locks.len()];
        assert_eq!(counts, [1, 2, 1], "{name}");
        // What it says is written down again as it is read.
        let mut writer = Writer::new(file(&[]), Compression::Fast);
        for pages in image.pages() {
            let (run, bytes) = pages.unwrap_or_else(|error| panic!("{error}"));
            writer.put(run.owner, run.address, &bytes).expect("there is memory");
        }
        let again = writer.finish_pod(state.clone(), pod.clone()).expect("there is memory").file;
        let again = Image::open(again).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((again.state(), again.pod()), (state, image.pod()), "{name}");
        assert_eq!(digest(&again), pages, "{name}");
    }
}

/// Kinds of open files that an image has.
fn kinds() -> [fn(&OpenFile) -> bool; 6] {
    [
        |it| matches!(it, OpenFile::NamedPipe { .. }),
        |it| matches!(it, OpenFile::Notifications { .. }),
        |it| matches!(it, OpenFile::Terminal { .. }),
        |it| matches!(it, OpenFile::Socket { .. }),
        |it| matches!(it, OpenFile::Queue { .. }),
        |it| matches!(it, OpenFile::Counter { .. }),
    ]
}

/// An image with another description.
fn with_description(bytes: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let at = |offset: usize| {
        let bytes = bytes[offset..offset + 8].try_into().expect("eight");
        usize::try_from(u64::from_le_bytes(bytes)).expect("it is short")
    };
    let (offset, length) = (at(16), at(24));
    let mut value: Value =
        ciborium::from_reader(&bytes[offset..offset + length]).expect("it is CBOR");
    change(&mut value);
    let mut description = Vec::new();
    ciborium::into_writer(&value, &mut description).expect("there is memory");
    let mut numbers = (offset as u64).to_le_bytes().to_vec();
    numbers.extend((description.len() as u64).to_le_bytes());
    numbers.extend(crc32fast::hash(&description).to_le_bytes());
    numbers.extend(&blake3::hash(&description).as_bytes()[..12]);
    let mut other = bytes[..offset].to_vec();
    other[12..16].copy_from_slice(&crc32fast::hash(&numbers).to_le_bytes());
    other[16..16 + numbers.len()].copy_from_slice(&numbers);
    other.extend(description);
    other
}

/// The field of a map.
fn field<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    let map = value.as_map_mut().expect("it is a map");
    let found = map.iter_mut().find(|(key, _)| key.as_text() == Some(name));
    &mut found.expect("it has that field").1
}

#[test]
fn what_is_newer_is_skipped_or_refused() {
    let (name, ..) = KNOWN[KNOWN.len() - 1];
    let bytes = golden(name);
    assert!(bytes.len() < 64 << 10 && bytes.len() > PIECES_OFFSET, "{}", bytes.len());
    let image = open(&bytes).unwrap_or_else(|error| panic!("{error}"));
    // A minor version later there are fields that nobody here knows, and some are left out that were always there.
    let new = || (Value::from("news"), Value::Array(vec![1.into(), "two".into()]));
    let mut later = with_description(&bytes, |content| {
        content.as_map_mut().expect("a map").push(new());
        let state = field(content, "state");
        state.as_map_mut().expect("a map").push(new());
        let processes = field(state, "processes").as_array_mut().expect("a list");
        processes[0].as_map_mut().expect("a map").push(new());
        let extents = field(content, "extents").as_array_mut().expect("a list");
        extents[0].as_map_mut().expect("a map").push(new());
    });
    later[8..12].copy_from_slice(&7_u32.to_le_bytes());
    let found = open(&later).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((found.state(), found.pod()), (image.state(), image.pod()));
    assert_eq!(digest(&found), digest(&image));
    // What has to be understood is not guessed.
    let unknown = with_description(&bytes, |content| {
        let files = field(field(content, "state"), "descriptions").as_array_mut().expect("a list");
        *field(&mut files[0], "file") = Value::Map(vec![("Telepathy".into(), Value::Map(vec![]))]);
    });
    let unknown = open(&unknown).map(drop).expect_err("nobody knows that file");
    assert!(unknown.to_string().contains("its description is wrong"), "{unknown}");
    let missing = with_description(&bytes, |content| {
        let state = field(content, "state").as_map_mut().expect("a map");
        state.retain(|(key, _)| key.as_text() != Some("processes"));
    });
    assert!(open(&missing).is_err(), "there are no processes");
    for major in [0, 3, 255] {
        let mut other = bytes.clone();
        other[7] = major;
        let refused = open(&other).map(drop).expect_err("it is another format");
        assert!(refused.to_string().contains(&format!("its version is {major}")), "{refused}");
    }
}

/// Takes out what is only of the machine where it is made.
fn clean(state: &mut State) {
    let of_test = |path: &mut String| {
        if path.starts_with("/tmp/") {
            let name = path.rsplit('/').next().unwrap_or_default();
            *path = format!("/tmp/{name}");
        }
    };
    state.vdso_code = Bytes(Vec::new());
    for process in &mut state.processes {
        process.directory = "/".to_owned();
        for thread in &mut process.threads {
            let components = thread.extended.components.iter_mut().map(|(_, bytes)| bytes);
            components.chain([&mut thread.extended.legacy]).for_each(|bytes| bytes.0.fill(0));
        }
        of_test(&mut process.memory.program);
        for mapping in &mut process.memory.mappings {
            if let Source::File { path, .. } = &mut mapping.source {
                of_test(path);
            }
        }
    }
    for description in &mut state.descriptions {
        if let OpenFile::Path { path, .. } = &mut description.file {
            of_test(path);
        }
    }
}

/// Adds one of each kind.
fn add_to(state: &mut State) {
    let pid = state.processes[0].pid;
    let name = |id| IpcName { id, key: 1, user: 0, group: 0, mode: 0o600 };
    state.ipc = Some(Ipc {
        segments: vec![Segment { name: name(7), bytes: 4096, removed: false }],
        semaphores: vec![Semaphores { name: name(8), values: vec![1, 2] }],
        queues: vec![MessageQueue {
            name: name(9),
            limit: 16_384,
            messages: vec![checkpoint::state::Message { kind: 1, bytes: Bytes(vec![5]) }],
        }],
    });
    state.terminals.push(terminal());
    state.objects.push(Object {
        bytes: 4096,
        name: "memory".to_owned(),
        seals: 0,
        directory: None,
    });
    let socket = |protocol| Socket { options: Vec::new(), protocol };
    state.sockets.push(socket(Protocol::Unix(Unix {
        kind: UnixKind::Stream,
        name: None,
        role: UnixRole::Idle,
        shutdown: 0,
        queue: Vec::new(),
        peer_is: None,
    })));
    state.sockets.push(socket(Protocol::Inet(Inet {
        six: false,
        multipath: false,
        name: "1.2.3.4:5".parse().ok(),
        role: InetRole::Idle,
        groups: Vec::new(),
    })));
    state.locks.push(Lock { description: 0, owner: LockOwner::Whole, exclusive: true });
    let (capacity, content) = (4096, Bytes(vec![6]));
    state.named_pipes.push(NamedPipe { path: "/tmp/pipe".to_owned(), capacity, content });
    state.posix_queues.push(PosixQueue {
        name: Some("queue".to_owned()),
        user: 0,
        group: 0,
        mode: 0o600,
        max_messages: 3,
        message_bytes: 8,
        messages: vec![(2, Bytes(vec![7]))],
    });
    let watches = vec![PathWatch { number: 1, path: "/etc".to_owned(), events: 2 }];
    for file in [
        OpenFile::Notifications { pid, watches },
        OpenFile::NamedPipe { index: 0, waits: false },
        OpenFile::Queue { index: 0 },
        OpenFile::Terminal { index: 0, end: TerminalEnd::Slave },
        OpenFile::Socket { index: 0 },
        OpenFile::Socket { index: 1 },
        OpenFile::Object { index: 0, position: 3 },
        OpenFile::Counter { value: 4, semaphore: true },
        OpenFile::Signals { mask: 1 },
        OpenFile::Process { task: pid },
        OpenFile::Slot { name: "input".to_owned() },
    ] {
        state.descriptions.push(Description { flags: 2, file });
    }
}

/// What an image of this version has to be put beside the others.
#[test]
fn an_image_of_each_kind_of_thing_is_written() {
    let Some(bytes) = waiting("golden") else { return };
    let image = Image::open(file(&bytes)).unwrap_or_else(|error| panic!("{error}"));
    let mut state = image.state().clone();
    clean(&mut state);
    add_to(&mut state);
    let mut writer = Writer::new(file(&[]), Compression::Fast);
    let mut random = fastrand::Rng::with_seed(1);
    for (run, is_plain) in image.runs().iter().zip([false, true, false]) {
        let mut bytes = vec![run.bytes.to_le_bytes()[1]; 4096];
        if is_plain {
            bytes.fill_with(|| random.u8(..));
        }
        writer.put(run.owner, run.address, &bytes).expect("there is room");
    }
    writer.put(Owner::Object(0), 0, &[3; 4096]).expect("there is room");
    writer.put(Owner::Segment(0), 0, &[4; 4096]).expect("there is room");
    writer.put(Owner::Files, 0, &[0; 4096]).expect("there is room");
    let pod = Pod {
        hostname: "golden".to_owned(),
        command: vec!["still".to_owned()],
        first: state.processes[0].pid,
        root: "/".to_owned(),
        is_writable: false,
        terminal: Some(0),
        clocks: [1, 2],
        joined: Some(Joined {
            network: "net".to_owned(),
            address: [10, 89, 0, 2].into(),
            lease: "1".to_owned(),
        }),
    };
    let written = writer.finish_pod(state.clone(), pod.clone()).expect("there is room").file;
    let mut bytes = Vec::new();
    (&written).seek(SeekFrom::Start(0)).expect("it is open");
    (&written).read_to_end(&mut bytes).expect("it is there");
    let again = open(&bytes).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((again.state(), again.pod()), (&state, Some(&pod)));
    for kind in kinds() {
        assert!(again.state().descriptions.iter().any(|it| kind(&it.file)), "it lacks a file");
    }
    println!("{} {}", again.state().descriptions.len(), digest(&again));
    if let Some(path) = std::env::var_os("BIVOUAC_GOLDEN") {
        fs::write(path, bytes).expect("there is room");
    }
}

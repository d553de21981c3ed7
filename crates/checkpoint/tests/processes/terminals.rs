//! Terminals whose masters are in the tree, or are ours.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use checkpoint::{Compression, Given, Image, Slots, Writer, freeze, restart};
use rustix::fs::{Mode, OFlags};

use crate::support::{Directory, Namespace, Subject, compile};

/// It goes on after dumps and restarts; where `is_still`, a dump of what was restarted is the same.
fn check(program: &str, is_still: bool) {
    let directory = Directory::new(program);
    let Some(compiled) = compile(&directory, program) else { return };
    let Some(namespace) = Namespace::new(&[]).filter(Namespace::has_terminals) else { return };
    drop(namespace);
    let Some(mut subject) = Subject::start(&directory, &compiled) else { return };
    subject.check();
    subject.check_dumps(2);
    for _ in 0..3 {
        match is_still {
            true => drop(subject.check_transplant()),
            false => drop(subject.transplant()),
        }
        subject.check();
    }
}

#[test]
fn terminals_of_all_kinds() {
    check("terminals", true);
}

#[test]
fn terminals_that_were_hung_up() {
    check("hungup", true);
}

#[test]
fn a_shell_with_job_control() {
    if let Err(error) = Command::new("bash").arg("--version").output() {
        println!("skipped: there is no bash: {error}");
        return;
    }
    check("shell", false);
}

/// A new terminal of a namespace, by its master.
fn open_terminal(namespace: &Namespace) -> File {
    let path = format!("/proc/{}/root/dev/pts/ptmx", namespace.init);
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let master = rustix::fs::open(path, flags, Mode::empty()).expect("there is a multiplexer");
    rustix::pty::unlockpt(&master).expect("it is a master");
    File::from(master)
}

/// Read until some text has come.
fn expect(master: &mut File, text: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut seen = String::new();
    while !seen.contains(text) {
        assert!(Instant::now() < deadline, "{text:?} does not come; there is {seen:?}");
        let mut bytes = [0; 4096];
        match master.read(&mut bytes) {
            Ok(read) => seen.push_str(&String::from_utf8_lossy(&bytes[..read])),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[test]
fn a_terminal_whose_master_is_ours() {
    let directory = Directory::new("our-terminal");
    let Some(program) = compile(&directory, "copy") else { return };
    let waiting = "until test -e /dev/pts/0; do sleep 0.01; done; exec setsid sh -c \"$0\" \"$1\"";
    let copy = "exec <>/dev/pts/0 >&0 2>&0; exec \"$0\"";
    let program = program.to_str().expect("it is UTF-8");
    let arguments = ["sh", "-c", waiting, copy, program];
    let Some(namespace) = Namespace::new(&arguments) else { return };
    if !namespace.has_terminals() {
        return;
    }
    let mut master = open_terminal(&namespace);
    master.write_all(b"one\n").expect("it is a terminal");
    expect(&mut master, "one\r\none\r\n");
    master.write_all(b"par").expect("it is a terminal");
    expect(&mut master, "par");
    let pid = namespace.processes()[0];
    let refused = freeze(pid)
        .and_then(|mut frozen| frozen.dump(&mut crate::support::NoPages, &Slots::new()).map(drop));
    let refused = refused.expect_err("its master is not in the tree").to_string();
    assert!(refused.contains("whose master is not in the tree"), "{refused}");
    let mut slots = Slots::new();
    slots.add_terminal("console", &master).unwrap_or_else(|error| panic!("{error}"));
    let file = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC);
    let mut writer = Writer::new(file.expect("there is memory").into(), Compression::Fast);
    let mut frozen = freeze(pid).unwrap_or_else(|error| panic!("{error}"));
    let state = frozen.dump(&mut writer, &slots).unwrap_or_else(|error| panic!("{error}"));
    frozen.thaw();
    master.write_all(b"tial\n").expect("it is a terminal");
    expect(&mut master, "tial\r\npartial\r\n");
    drop((master, slots, namespace));
    let image = Image::open(writer.finish(state).expect("there is memory"));
    let image = image.unwrap_or_else(|error| panic!("{error}"));
    let namespace = Namespace::new(&[]).expect("the first one could be made");
    let first = open_terminal(&namespace);
    let second = open_terminal(&namespace);
    let wrong = Given::from([("console", second.as_fd())]);
    let wrong = restart(namespace.init, &image, &wrong).expect_err("it is another terminal");
    assert!(wrong.to_string().contains("terminal 1 is given"), "{wrong}");
    let given = Given::from([("console", first.as_fd())]);
    let restarted = restart(namespace.init, &image, &given);
    restarted.and_then(checkpoint::Restarted::go).unwrap_or_else(|error| panic!("{error}"));
    let mut master = first;
    master.write_all(b"tial\n").expect("it is a terminal");
    expect(&mut master, "tial\r\npartial\r\n");
    // Its session has it: it is hung up with it.
    drop(master);
    let deadline = Instant::now() + Duration::from_secs(20);
    let has_ended = || {
        let alive = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        !namespace.processes().iter().any(alive)
    };
    while !has_ended() {
        assert!(Instant::now() < deadline, "it is not hung up");
        thread::sleep(Duration::from_millis(1));
    }
}

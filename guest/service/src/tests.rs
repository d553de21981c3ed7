//! Tests of the service without a machine: the line is a pseudo-terminal and the test is the host.
//!
//! One function runs one test after the other, because the reaper reaps every child of the process.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::{Decoder, Encoder, FIRST, Frame, Order};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::error::Error;
use crate::line::Line;
use crate::line::open_device;
use crate::reaper::End;
use crate::serve::{Next, System, serve};

/// A system that has everything.
struct Anything;

impl System for Anything {
    const PLACE: &'static str = "guest";

    fn obey(&mut self, frame: &Frame, _line: &mut Line) -> Result<Next, Error> {
        Err(Error::OutOfTurn(crate::error::name_of(frame)))
    }

    fn has_ended(&mut self, _pid: u32, _end: End) {}
}

/// The host's side of a conversation.
struct Host {
    line: File,
    encoder: Encoder,
    frames: Receiver<Frame>,
    service: JoinHandle<Result<(), Error>>,
}

impl Host {
    /// Starts the service and hears its greeting.
    fn start() -> Host {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = PathBuf::from(name.to_str().unwrap());
        let service = std::thread::spawn(move || serve(open_device(&path).unwrap(), &mut Anything));
        let line = File::from(master);
        let mut reader = line.try_clone().unwrap();
        let (sender, frames) = channel();
        std::thread::spawn(move || {
            let mut decoder = Decoder::after_greeting();
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                decoder.feed(&buffer[..count]);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    if sender.send(frame).is_err() {
                        return;
                    }
                }
            }
        });
        let mut host = Host { line, encoder: Encoder::default(), frames, service };
        let (version, window) = (protocol::VERSION, protocol::WINDOW_OF_SERIAL_BYTES);
        assert_eq!(host.hear(), Frame::Hello { version, window });
        host
    }

    fn say(&mut self, frame: &Frame) {
        self.say_to(FIRST, frame);
    }

    fn say_to(&mut self, session: u16, frame: &Frame) {
        let mut bytes = Vec::new();
        self.encoder.put_to(session, frame, &mut bytes);
        self.line.write_all(&bytes).unwrap();
    }

    fn hear(&mut self) -> Frame {
        self.frames.recv_timeout(Duration::from_secs(20)).expect("the service says nothing")
    }

    fn order(&mut self, order: &Order) {
        self.say(&Frame::Order(order.encode().unwrap()));
        self.say(&Frame::Start);
    }

    /// Hears until the command has ended: its output, its errors, and its end.
    fn collect(mut self) -> (String, String, Frame) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match self.hear() {
                Frame::Stdout(data) => {
                    // The header and the data, as the user has both at once.
                    self.say(&Frame::Credit(data.len() as u32 + 6));
                    stdout.extend(data);
                }
                Frame::Stderr(data) => stderr.extend(data),
                Frame::Started | Frame::Credit(_) => {}
                end => {
                    self.service.join().unwrap().unwrap();
                    let text = |bytes| String::from_utf8(bytes).unwrap();
                    return (text(stdout), text(stderr), end);
                }
            }
        }
    }
}

fn shell(script: &str) -> Order {
    Order {
        arguments: ["/bin/sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec(),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec(), b"GREETING=hello=there".to_vec()],
        directory: b"/".to_vec(),
        ..Order::default()
    }
}

/// Runs `order` to its end without input.
fn run(order: &Order) -> (String, String, Frame) {
    let mut host = Host::start();
    host.order(order);
    host.say(&Frame::StdinEnd);
    host.collect()
}

#[test]
fn the_service() {
    streams_status_and_environment();
    closed_streams_fail_as_such();
    ends_by_signal();
    commands_that_do_not_start();
    input_reaches_the_command_and_ends();
    signals_reach_the_command();
    more_output_than_a_window();
    a_host_that_talks_nonsense();
}

fn streams_status_and_environment() {
    let (stdout, stderr, end) = run(&shell("echo $GREETING; pwd; env | wc -l; echo e >&2; exit 7"));
    // A shell adds PWD and, some of them, SHLVL and _.
    assert!(stdout.starts_with("hello=there\n/\n"), "{stdout:?}");
    assert_eq!((stderr.as_str(), end), ("e\n", Frame::Exited(7)));
}

fn closed_streams_fail_as_such() {
    let script = "echo out; echo $? >&2; cat; echo $? >&2";
    let (stdout, stderr, _) = run(&Order { closed: [true, true, false], ..shell(script) });
    let lines: Vec<_> = stderr.lines().collect();
    assert!(stdout.is_empty() && stderr.contains("Bad file descriptor"), "{stderr}");
    assert!(lines.contains(&"1") && !lines.contains(&"0"), "{stderr}");
}

fn ends_by_signal() {
    assert_eq!(run(&shell("kill -9 $$")).2, Frame::Signaled(9));
}

fn commands_that_do_not_start() {
    let named = |name: &str| Order { arguments: vec![name.as_bytes().to_vec()], ..shell("") };
    let (_, stderr, end) = run(&named("no-such-command"));
    assert_eq!(stderr, "biv: no-such-command: command not found in the guest\n");
    assert_eq!(end, Frame::Exited(127));
    assert_eq!(run(&named("/etc/passwd")).2, Frame::Exited(126));
    for (directory, terminal) in [("/no/such", None), ("/etc/passwd", Some((24, 80)))] {
        let directory = directory.as_bytes().to_vec();
        let (_, stderr, end) =
            run(&Order { directory: directory.clone(), terminal, ..shell("pwd") });
        let directory = String::from_utf8(directory).unwrap();
        let expected = format!("biv: /bin/sh: cannot change to the directory {directory} (");
        assert!(stderr.starts_with(&expected), "{stderr:?}");
        assert_eq!(end, Frame::Exited(126));
    }
    assert_eq!(run(&named("/")).2, Frame::Exited(126));
}

fn input_reaches_the_command_and_ends() {
    let mut host = Host::start();
    host.order(&shell("wc -c; echo done"));
    // Every byte, those included that a terminal which is not raw would take for itself.
    for _ in 0..16 {
        host.say(&Frame::Stdin((0..=255).collect()));
    }
    host.say(&Frame::StdinEnd);
    let (stdout, _, end) = host.collect();
    assert_eq!((stdout.as_str(), end), ("4096\ndone\n", Frame::Exited(0)));
}

fn signals_reach_the_command() {
    let mut host = Host::start();
    host.order(&shell("trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done"));
    while host.hear() != Frame::Stdout(b"ready\n".to_vec()) {}
    host.say(&Frame::Signal(250));
    host.say(&Frame::Signal(15));
    let (stdout, _, end) = host.collect();
    assert_eq!((stdout.as_str(), end), ("caught\n", Frame::Exited(3)));
}

fn more_output_than_a_window() {
    let (stdout, _, end) = run(&shell("head -c 300000 /dev/zero | tr '\\0' x"));
    assert_eq!((stdout.len(), end), (300_000, Frame::Exited(0)));
}

fn a_host_that_talks_nonsense() {
    let check = |frame: &Frame| {
        let mut host = Host::start();
        host.say(frame);
        assert!(host.service.join().unwrap().is_err(), "{frame:?} was accepted");
    };
    check(&Frame::Stdin(b"too early".to_vec()));
    check(&Frame::Exited(0));
    check(&Frame::Start);
}

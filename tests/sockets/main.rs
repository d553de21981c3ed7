//! Virtio sockets: programs of the host's and of the guest's that talk to each other, and those that do
//! not listen.

#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use whole_machine::modes::Mode;
use whole_machine::processes::descendants;
use whole_machine::waiting::wait_for;
use whole_machine::{in_mode, text};

/// How long a socket waits before a test gives up.
const PATIENCE: Duration = Duration::from_secs(300);

/// The guest's port at which what is sent comes back, and that of somebody who does not read.
const ECHO: u32 = 5000;
const DEAF: u32 = 5001;

/// A machine with sockets, which waits for the end of its input.
struct Machine {
    child: Child,
    path: PathBuf,
}

impl Machine {
    /// One that runs this script, with the guest's program at hand, and says that it is up.
    fn start(mode: Mode, script: &str) -> Machine {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("biv-vsock-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let volume = format!("{}:/programs:ro", env!("SOCKETS_ROOT"));
        let vsock = path.to_string_lossy();
        let options =
            ["--busybox", "--volume", &volume, "--vsock", &vsock, "--", "sh", "-c", script];
        let child = mode.run(&options).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Machine { child: child.expect("biv can be started"), path }
    }

    /// One with both of the guest's ports.
    fn listening(mode: Mode) -> Machine {
        let script = format!(
            "/programs/socket echo {ECHO} & /programs/socket deaf {DEAF} & echo up; read line"
        );
        let mut machine = Machine::start(mode, &script);
        assert_eq!(machine.line(), "up\n");
        wait_for("the guest listens", || machine.connect(ECHO).is_some());
        wait_for("so does the other", || machine.connect(DEAF).is_some());
        machine
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.child.stdout.as_mut().expect("piped");
        BufReader::with_capacity(1, stdout).read_line(&mut line).expect("it can be read");
        line
    }

    /// Connects to a port of the guest's, if somebody listens.
    fn connect(&self, port: u32) -> Option<UnixStream> {
        let mut stream = UnixStream::connect(&self.path).expect("the sockets are served");
        stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        stream.write_all(format!("CONNECT {port}\n").as_bytes()).expect("it is read");
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            match stream.read(&mut byte).expect("it answers") {
                0 => return None,
                _ => line.push(byte[0]),
            }
        }
        assert!(text(&line).starts_with("OK "), "{}", text(&line));
        Some(stream)
    }

    /// It ends with its input.
    fn end(mut self) {
        drop(self.child.stdin.take());
        let ended = self.child.wait().expect("it is ours");
        // `read` finds no line.
        assert_eq!(ended.code(), Some(1));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Bytes that are not all alike.
fn bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// What comes back when all of it is sent.
fn echo(stream: UnixStream, bytes: &[u8]) -> Vec<u8> {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(bytes).expect("it is taken");
            stream.shutdown(Shutdown::Write).expect("it is connected");
        });
        let mut back = Vec::new();
        (&stream).read_to_end(&mut back).expect("it comes back");
        back
    })
}

fn programs_of_the_host_reach_the_guest(mode: Mode) {
    let machine = Machine::listening(mode);
    let much = bytes(3_000_000);
    assert!(echo(machine.connect(ECHO).expect("it listens"), &much) == much);
    assert!(machine.connect(4999).is_none(), "nobody listens there");
    // One that does not read makes nobody wait but who talks to it.
    let mut deaf = machine.connect(DEAF).expect("it listens");
    deaf.set_write_timeout(Some(Duration::from_millis(500))).expect("it can be set");
    let mut sent = 0;
    while let Ok(count @ 1..) = deaf.write(&much) {
        sent += count;
        assert!(sent < 64 << 20, "nobody holds so much");
    }
    let many: Vec<_> = (0..20).map(|_| machine.connect(ECHO).expect("it listens")).collect();
    std::thread::scope(|scope| {
        for (number, stream) in many.into_iter().enumerate() {
            scope.spawn(move || {
                let bytes = bytes(10_000 * number + 1);
                assert!(echo(stream, &bytes) == bytes, "connection {number}");
            });
        }
    });
    drop(deaf);
    machine.end();
}

fn the_guest_reaches_programs_of_the_host(mode: Mode) {
    let script = "read line; seq 300000 | /programs/socket stream 77 | tail -n 1
        echo hello | /programs/socket stream 77
        /programs/socket stream 78 </dev/null 2>&1; echo $?";
    let mut machine = Machine::start(mode, script);
    let path = PathBuf::from(format!("{}_77", machine.path.display()));
    let listener = UnixListener::bind(&path).expect("there is room");
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let (stream, _) = listener.accept().expect("the guest connects");
            std::io::copy(&mut &stream, &mut &stream).expect("it reads");
        }
    });
    machine.child.stdin.take().expect("piped").write_all(b"go\n").expect("it reads");
    let mut said = String::new();
    machine.child.stdout.as_mut().expect("piped").read_to_string(&mut said).expect("it says");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines, ["300000", "hello", "connect: Connection reset by peer", "1"]);
    server.join().expect("both were served");
    std::fs::remove_file(path).expect("it is there");
}

fn a_machine_outlives_the_other_end_of_its_sockets(mode: Mode) {
    let machine = Machine::listening(mode);
    let mut stream = machine.connect(ECHO).expect("it listens");
    let is_it = |process: &u32| {
        let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        words.split(|&byte| byte == 0).nth(1) == Some(b"--bivouac-process=sockets")
            && text(&words).contains(&*machine.path.to_string_lossy())
    };
    let process = descendants().into_iter().find(is_it).expect("there is such a process");
    let killed = Command::new("kill").args(["-s", "KILL", &process.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    wait_for("nobody listens", || UnixStream::connect(&machine.path).is_err());
    machine.end();
}

#[test]
fn what_cannot_be_is_said() {
    let check = |vsock: &str, words: &str| {
        let output =
            whole_machine::biv(&["run", "--busybox", "--vsock", vsock, "--", "true"]).output();
        let output = output.expect("biv can be started");
        assert_eq!(output.status.code(), Some(125), "{vsock}");
        assert!(text(&output.stderr).contains(words), "{output:?}");
    };
    check("/no/such/place", "cannot listen at /no/such/place");
    check(&format!("/tmp/{}", "x".repeat(100)), "give a shorter one");
}

in_mode!(
    translated_on_1,
    Translate,
    1,
    programs_of_the_host_reach_the_guest,
    the_guest_reaches_programs_of_the_host,
    a_machine_outlives_the_other_end_of_its_sockets
);
in_mode!(
    auto_on_4,
    Auto,
    4,
    programs_of_the_host_reach_the_guest,
    the_guest_reaches_programs_of_the_host
);

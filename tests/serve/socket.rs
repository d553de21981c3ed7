//! The socket: whose it is, who has it, and what is left of it.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use whole_machine::bivouac;
use whole_machine::user::end_of;

use super::place::Place;

/// What is in the registry but its own lock.
fn left(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.path.join("bivouac")).expect("there is a registry");
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != ".lock").collect()
}

#[test]
fn only_its_user_connects_and_a_second_server_is_refused() {
    let mut place = Place::new();
    let mode = fs::metadata(place.socket()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let reason = place.user.complains(&["serve"]);
    assert!(reason.contains("already"), "{reason}");
    assert_eq!(place.get("/v1/ping").status, 200, "the first one goes on");
    for by in [Signal::TERM, Signal::INT] {
        let ended = place.end(by);
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
        assert_eq!(left(&place), Vec::<String>::new());
        place.serve(&[]);
    }
}

#[test]
fn a_socket_that_was_left_is_replaced() {
    let mut place = Place::new();
    place.end(Signal::KILL);
    assert!(place.socket().exists() && UnixStream::connect(place.socket()).is_err());
    place.serve(&[]);
    assert_eq!(place.get("/v1/ping").status, 200);
    place.end(Signal::TERM);
    fs::write(place.socket(), "a file").expect("it can be written");
    let reason = place.user.complains(&["serve"]);
    assert!(reason.contains("no socket"), "{reason}");
    assert_eq!(fs::read(place.socket()).expect("it is there"), b"a file");
    fs::remove_file(place.socket()).expect("it is ours");
}

#[test]
fn a_server_with_nothing_to_do_ends() {
    let mut place = Place::empty();
    let start = Instant::now();
    place.serve(&["--idle", "1"]);
    let held = place.connect();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(place.get("/v1/ping").status, 200, "it ended while somebody was connected");
    drop(held);
    let ended = place.ended();
    assert!(ended.status.success(), "{ended:?}");
    assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(left(&place), Vec::<String>::new());
}

#[test]
fn a_socket_of_a_service_manager_is_served_and_stays() {
    let place = Place::empty();
    let path = place.path.join("activated");
    let listener = UnixListener::bind(&path).expect("a socket");
    const SCRIPT: &str = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; \
                          exec \"$0\" serve --idle 1";
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).arg(bivouac()).env("XDG_RUNTIME_DIR", &place.path);
    command.stdin(OwnedFd::from(listener.try_clone().expect("a descriptor")));
    let server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sh");
    let mut stream = UnixStream::connect(&path).expect("systemd listens");
    std::io::Write::write_all(&mut stream, b"GET /v1/ping HTTP/1.0\r\n\r\n").expect("it is read");
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).expect("it is answered");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    let ended = end_of(server);
    assert!(ended.status.success(), "{ended:?}");
    assert!(path.exists() && !place.socket().exists(), "the socket is not the server's");
}

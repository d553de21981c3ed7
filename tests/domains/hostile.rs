//! Clients of a domain's socket that are broken, slow, or somebody else.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::place::Place;
use whole_machine::text;
use whole_machine::waiting::wait_for;

/// Connects, as `user` if one is given, and prints what is answered to a request.
const ASK: &str = r#"
use IO::Socket::UNIX;
my $socket = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "no connection: $!";
print $socket "GET /v1/domain HTTP/1.1\r\n\r\n";
print <$socket>;
"#;

fn socket_of(place: &Place, name: &str) -> PathBuf {
    place.path.join("bivouac").join(name).join("control")
}

/// What a domain answers to these bytes.
fn answer(socket: &PathBuf, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    // It may hang up before it has heard all of it.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    text(&answer)
}

#[test]
fn a_domain_minds_no_hostile_clients() {
    let place = Place::new();
    place.detach("web", "sleep 1000");
    let socket = socket_of(&place, "web");
    let mode = |path: &PathBuf| fs::metadata(path).expect("it is there").permissions().mode();
    assert_eq!(mode(&socket) & 0o777, 0o600);
    assert_eq!(mode(&socket.parent().expect("a directory").to_owned()) & 0o777, 0o700);

    let check = |bytes: &[u8], status: &str| {
        let answer = answer(&socket, bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer:?}");
    };
    check(b"GET /v1/domain HTTP/1.1\r\n\r\n", "200");
    check(b"\x16\x03\x01\x02\x00\x01\x00", "400");
    check(b"SSH-2.0-OpenSSH\r\n", "400");
    check(&[b"GET /", &[b'x'; 100_000][..]].concat(), "431");
    check(&[b"GET / HTTP/1.1\r\n", b"a: b\r\n".repeat(10_000).as_slice()].concat(), "431");
    check(b"POST /v1/domain/kill HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", "413");
    check(b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", "404");
    assert_eq!(answer(&socket, b""), "");
    assert_eq!(answer(&socket, b"GET /v1/domain HTTP/1.1\r\n"), "");

    // What becomes a stream of frames and is none.
    let upgrade = b"POST /v1/domain/exec HTTP/1.1\r\nUpgrade: bivouac-frames\r\n\r\nnonsense";
    assert!(!answer(&socket, upgrade).starts_with("HTTP/1.1 2"));

    // Those who say nothing keep nobody waiting, though there are as many as there may be.
    let silent: Vec<UnixStream> =
        (0..31).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    assert!(place.exec("web", "true").status.success());
    let mut slow = &silent[0];
    slow.write_all(b"GET /v1/dom").expect("it listens");
    // After a while they are dropped.
    wait_for("the silent are dropped", || {
        silent[30].set_nonblocking(true).is_ok() && matches!((&silent[30]).read(&mut [0]), Ok(0))
    });
    assert!(place.exec("web", "true").status.success());
}

#[test]
fn others_are_not_answered() {
    let place = Place::new();
    place.detach("web", "sleep 1000");
    let socket = socket_of(&place, "web");
    let ask = |user: Option<u32>| {
        let mut command = Command::new("timeout");
        command.args(["10", "perl", "-e", ASK]).arg(&socket);
        if let Some(user) = user {
            std::os::unix::process::CommandExt::uid(&mut command, user);
        }
        command.output().expect("perl is part of every Debian")
    };
    assert!(text(&ask(None).stdout).starts_with("HTTP/1.1 200 "));
    if !rustix::process::getuid().is_root() {
        return;
    }
    const NOBODY: u32 = 65534;
    assert!(text(&ask(Some(NOBODY)).stderr).contains("no connection"));
    // Not even if the way is open.
    for (path, mode) in [(&place.path, 0o755), (&place.path.join("bivouac"), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    let directory = socket.parent().expect("a directory");
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("it is ours");
    let output = ask(Some(NOBODY));
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("", ""));
}

/// What a domain that a guest owns says of itself is shown by others' commands, and obeyed by no terminal.
#[test]
fn what_a_domain_says_commands_no_terminal() {
    const ESCAPES: &str = "\u{1b}]0;owned\u{7}\u{9b}2J\u{7f}\nbiv: all is well\r";
    let place = Place::new();
    place.detach("web", "sleep 1000");
    let socket = socket_of(&place, "web");
    let aside = socket.with_file_name("aside");
    fs::rename(&socket, &aside).expect("it is ours");
    let listener = UnixListener::bind(&socket).expect("the name is free");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody asks");
        let body = serde_json::json!({ "error": ESCAPES }).to_string();
        let length = body.len();
        let head = format!("HTTP/1.1 409 Conflict\r\nContent-Length: {length}\r\n\r\n");
        let asked = stream.read(&mut [0; 4096]).expect("it asks");
        assert!(asked > 0, "it asks nothing");
        stream.write_all((head + &body).as_bytes()).expect("it listens");
    });
    let refused = place.output(&["pause", "web"]);
    // Whoever listens there may be killed in the end: it must not be this test.
    fs::remove_file(&socket).and_then(|()| fs::rename(&aside, &socket)).expect("it is ours");
    server.join().expect("somebody has asked");
    let refused = text(&refused.stderr);
    assert!(refused.contains("owned") && refused.contains("well"), "{refused:?}");
    assert_eq!(refused.lines().count(), 1, "{refused:?}");

    let record = socket.with_file_name("record.json");
    let mut told: serde_json::Value =
        serde_json::from_slice(&fs::read(&record).expect("it is there")).expect("JSON");
    told["command"] = serde_json::json!([ESCAPES]);
    fs::write(&record, told.to_string()).expect("it is ours");
    let listed = place.says(&["ps"]);
    let described = place.says(&["ps", "--format", "json"]) + &place.says(&["inspect", "web"]);
    let commands = |letter: char| letter.is_control() && letter != '\n';
    for said in [&refused, &listed, &described] {
        assert!(said.contains("owned") && !said.contains(commands), "{said:?}");
    }
    assert_eq!(place.row("web").expect("it is listed")["command"][0], ESCAPES);
}

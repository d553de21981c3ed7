//! What asks the keeper of a registry, which may be killed at any moment.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use api::{Registry, files, keeper};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long the other thread may take to connect.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// What the test has the keeper do with a connection.
enum Fate {
    /// It ends before it has accepted it.
    Unaccepted,
    /// It ends before it has read the request.
    Unread,
    /// It ends in the midst of its answer.
    Half,
    /// It answers with this.
    Answered(&'static str),
}

/// A registry in a directory that disappears.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read_request(stream: &mut UnixStream) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        request.push(byte[0]);
    }
}

/// Asks a keeper how domains stand, and to look, with each of which this happens; whether both succeed.
fn asks(name: &str, fate: &Fate) -> bool {
    let process = std::process::id();
    let place = Place(std::env::temp_dir().join(format!("biv-keeper-{process}-{name}")));
    let registry = Registry::at(&place.0).unwrap();
    let held = registry.become_keeper().unwrap().unwrap();
    let socket = place.0.join(files::KEEPER).join(files::SOCKET);
    let asks: [fn(&Registry) -> bool; 2] = [
        |registry| keeper::standings(registry).is_ok_and(|standings| standings.is_empty()),
        |registry| keeper::look(registry).is_ok(),
    ];
    let succeeds = asks.map(|ask| {
        let listener = UnixListener::bind(&socket).unwrap();
        let succeeds = std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&registry));
            let mut waiting = [PollFd::new(&listener, PollFlags::IN)];
            assert_eq!(poll(&mut waiting, Some(&PATIENCE)).unwrap(), 1, "nobody has connected");
            let accept = || listener.accept().unwrap().0;
            match fate {
                Fate::Unaccepted => {}
                Fate::Unread => drop(accept()),
                Fate::Half => {
                    let mut stream = accept();
                    read_request(&mut stream);
                    stream.write_all(b"HTTP/1.1 200 O").unwrap();
                }
                Fate::Answered(answer) => {
                    let mut stream = accept();
                    read_request(&mut stream);
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
            drop(listener);
            asked.join().unwrap()
        });
        fs::remove_file(&socket).unwrap();
        succeeds
    });
    drop(held);
    succeeds == [true; 2]
}

#[test]
fn who_asks_a_keeper_that_is_killed_finds_none() {
    assert!(asks("unaccepted", &Fate::Unaccepted));
    assert!(asks("unread", &Fate::Unread));
    assert!(asks("half", &Fate::Half));
}

#[test]
fn one_that_answers_nonsense_is_no_keeper_that_was_killed() {
    assert!(asks("empty", &Fate::Answered("HTTP/1.1 200 OK\r\n\r\n[]")));
    assert!(!asks("nonsense", &Fate::Answered("SSH-2.0-OpenSSH_9.2\r\n\r\n")));
    assert!(!asks("refused", &Fate::Answered("HTTP/1.1 500 No\r\n\r\n")));
}

//! Connections to a control socket, each until it has its answer or becomes something else.
//!
//! Only this user and root are answered; the kernel tells which user a client is (SO_PEERCRED).

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use api::http::{self, Request, Response};
use host::poll::PollFlags;
use host::rights::receive;
use rustix::net::RecvFlags;
use rustix::process::Uid;

/// Connections at once that have not become something else; others wait.
const CONNECTIONS_MAX: usize = 32;

/// How long a client may take to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes read at once.
const PIECE_BYTES: usize = 16 << 10;

/// All connections of one socket. Each is known by its place, which changes when one before it goes.
#[derive(Debug)]
pub struct Connections {
    all: Vec<Connection>,
    /// The number of the next one.
    next: u64,
    /// Whose processes may ask.
    owner: Uid,
}

/// What a client has asked for.
#[derive(Debug)]
pub struct Asked {
    /// The request.
    pub request: Request,
    /// How many of the bytes that have come it was.
    pub length: usize,
}

impl Connections {
    /// None yet. Those of this user's processes will be answered.
    #[must_use]
    pub fn of(owner: Uid) -> Connections {
        Connections { all: Vec::new(), next: 0, owner }
    }

    /// Whether there is room for another.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.all.len() < CONNECTIONS_MAX
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes the next one of a socket that does not block.
    pub fn accept(&mut self, listener: &UnixListener) {
        let Ok((stream, _)) = listener.accept() else { return };
        if host::peer::is_of(&stream, self.owner) && stream.set_nonblocking(true).is_ok() {
            self.next += 1;
            self.all.push(Connection {
                number: self.next,
                stream,
                file: None,
                received: Vec::new(),
                outgoing: Vec::new(),
                stage: Stage::Asking,
                deadline: Instant::now() + PATIENCE,
            });
        }
    }

    /// What to poll of each, for what, and its place.
    pub fn watched(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>, PollFlags)> {
        self.all.iter().enumerate().filter_map(|(place, connection)| {
            let flags = match connection.stage {
                Stage::Answering => PollFlags::OUT,
                Stage::Waiting => return None,
                Stage::Asking | Stage::Leaving => PollFlags::IN,
            };
            Some((place, connection.stream.as_fd(), flags))
        })
    }

    /// When the first of them has taken too long.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.all.iter().map(|connection| connection.deadline).min()
    }

    /// Reads or writes what can be; the request, once it is complete.
    pub fn carry(&mut self, place: usize) -> Option<Asked> {
        let connection = self.all.get_mut(place)?;
        match connection.stage {
            Stage::Asking => {
                if !connection.receive() {
                    connection.expire();
                    return None;
                }
                match http::parse(&connection.received) {
                    Ok(None) => {}
                    Ok(Some((request, length))) => return Some(Asked { request, length }),
                    Err(error) => {
                        connection.answer(&Response::problem(error.status(), error.to_string()));
                    }
                }
            }
            Stage::Waiting => {}
            Stage::Answering => connection.send(),
            Stage::Leaving => {
                if !connection.receive() {
                    connection.expire();
                }
                connection.received.clear();
            }
        }
        None
    }

    /// Answers the one at a place.
    pub fn answer(&mut self, place: usize, response: &Response) {
        if let Some(connection) = self.all.get_mut(place) {
            connection.answer(response);
        }
    }

    /// The file that the one at a place has handed over.
    pub fn take_file(&mut self, place: usize) -> Option<File> {
        self.all.get_mut(place)?.file.take()
    }

    /// The one at a place is answered later, and may wait for so long; its number.
    pub fn wait(&mut self, place: usize, patience: Duration) -> Option<u64> {
        let connection = self.all.get_mut(place)?;
        connection.stage = Stage::Waiting;
        connection.deadline += patience;
        Some(connection.number)
    }

    /// Answers the one of a number; whether it is still there.
    pub fn answer_number(&mut self, number: u64, response: &Response) -> bool {
        let connection = self.all.iter_mut().find(|it| it.number == number);
        let Some(connection) = connection else { return false };
        connection.answer(response);
        connection.stage == Stage::Leaving
    }

    /// The one at a place becomes something else: its stream, and what has come after so many bytes.
    pub fn take(&mut self, place: usize, length: usize) -> (UnixStream, Vec<u8>) {
        let mut connection = self.all.remove(place);
        let rest = connection.received.split_off(length.min(connection.received.len()));
        (connection.stream, rest)
    }

    /// Forgets those that have taken too long, or are done.
    pub fn dismiss(&mut self) {
        let now = Instant::now();
        self.all.retain(|connection| connection.deadline > now);
    }
}

/// One of them.
#[derive(Debug)]
struct Connection {
    /// By which it is known as long as it is there.
    number: u64,
    stream: UnixStream,
    /// A file that it has handed over.
    file: Option<File>,
    received: Vec<u8>,
    outgoing: Vec<u8>,
    stage: Stage,
    deadline: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It says what it wants.
    Asking,
    /// What it wants is not done yet.
    Waiting,
    /// It is being answered.
    Answering,
    /// It has its answer; what it still sends is of no interest. Were it left unread, the answer could be
    /// lost (unix(7) has no half-closed state in which it is not).
    Leaving,
}

impl Connection {
    /// Takes what has come; `false` if that was the end.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; PIECE_BYTES];
        let mut received = match receive(&self.stream, &mut buffer, 1, RecvFlags::empty()) {
            Ok(received) => received,
            Err(errno) => return is_for_now(&errno.into()),
        };
        // The last one counts; others are closed.
        self.file = received.files.pop().map(File::from).or(self.file.take());
        self.received.extend_from_slice(&buffer[..received.bytes]);
        received.bytes > 0
    }

    fn answer(&mut self, response: &Response) {
        self.outgoing = response.bytes();
        self.stage = Stage::Answering;
        self.send();
    }

    fn send(&mut self) {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if is_for_now(&error) => return,
                Err(_) => return self.expire(),
            }
        }
        self.stage = Stage::Leaving;
        // If it has gone already, it is found so.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    fn expire(&mut self) {
        self.deadline = Instant::now();
    }
}

fn is_for_now(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted)
}

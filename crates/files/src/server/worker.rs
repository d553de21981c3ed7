//! The threads that serve a share. One of them has the turn: it waits for requests, and carries those out
//! at once that take less time than waking a thread does. With one that may take long it lets another
//! thread have the turn.
//!
//! Where there are cores to spare, it watches for the next request for a moment before it sleeps, if
//! requests have been following each other that closely: the guest's programs mostly wait for one
//! before they make the next.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use zerocopy::{FromBytes, IntoBytes};

use super::dispatch::{self, Pace};
use super::request::Ask;
use super::share::Share;
use crate::message::{MAX_MESSAGE_BYTES, MAX_RANGES, Range, Reply, Request};

/// Threads for each share.
const THREADS: usize = 4;

struct Line {
    socket: OwnedFd,
    /// Held by who waits for a request.
    turn: Mutex<()>,
}

/// How long to watch for the next request: somewhat more than waking a thread costs.
const WATCH: Duration = Duration::from_micros(100);

/// After so many watches in vain, it is not tried before a request has come early by itself.
const VAIN_WATCHES: u32 = 4;

/// Start a share's threads; they end when the other end of the socket is closed.
pub fn start(share: Arc<Share>, socket: OwnedFd, may_watch: bool) -> io::Result<()> {
    let line = Arc::new(Line { socket, turn: Mutex::new(()) });
    for _ in 0..THREADS {
        let (share, line) = (Arc::clone(&share), Arc::clone(&line));
        std::thread::Builder::new().name("files".to_owned()).spawn(move || {
            let mut worker = Worker { share: &share, line: &line, may_watch, vain: 0 };
            let mut bytes = vec![0; MAX_MESSAGE_BYTES];
            while worker.take_turn(&mut bytes).is_some() {}
        })?;
    }
    Ok(())
}

struct Worker<'a> {
    share: &'a Share,
    line: &'a Line,
    may_watch: bool,
    /// How often a watch has been in vain since a request came early.
    vain: u32,
}

impl Worker<'_> {
    /// Serve until a request is slow, or there are no more: then it is none.
    fn take_turn(&mut self, bytes: &mut [u8]) -> Option<()> {
        let turn = self.line.turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let length = self.receive(bytes)?;
            // A domain's process that does not make sense is not what it was, and gets nothing more.
            let (token, readable, writable) = understand(&bytes[..length])?;
            let ask = Ask::new(self.share.memory(), &readable, &writable);
            let Ok(mut ask) = ask else {
                // There is no question, or no place for an answer.
                self.reply(token, 0)?;
                continue;
            };
            if dispatch::pace(&ask) == Pace::Slow {
                drop(turn);
                let done = dispatch::carry_out(self.share, &mut ask);
                return self.reply(token, done);
            }
            let done = dispatch::carry_out(self.share, &mut ask);
            self.reply(token, done)?;
        }
    }

    fn reply(&self, token: u64, bytes: usize) -> Option<()> {
        let reply = Reply { token, bytes: bytes as u64 };
        send(&self.line.socket, reply.as_bytes(), SendFlags::NOSIGNAL).ok().map(|_| ())
    }

    /// The next message's length.
    fn receive(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let start = Instant::now();
        if self.may_watch && self.vain < VAIN_WATCHES {
            while start.elapsed() < WATCH {
                match recv(&self.line.socket, &mut *bytes, RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return None,
                    Ok((length, _)) => {
                        self.vain = 0;
                        return Some(length);
                    }
                    Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
                    Err(_) => return None,
                }
            }
            self.vain += 1;
        }
        loop {
            match recv(&self.line.socket, &mut *bytes, RecvFlags::empty()) {
                Ok((0, _)) => return None,
                Ok((length, _)) => {
                    if start.elapsed() < WATCH {
                        self.vain = 0;
                    }
                    return Some(length);
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

/// The parts of a message.
fn understand(bytes: &[u8]) -> Option<(u64, Vec<Range>, Vec<Range>)> {
    let (request, rest) = Request::read_from_prefix(bytes).ok()?;
    let (readable, writable) = (request.readable as usize, request.writable as usize);
    let count = readable.checked_add(writable).filter(|&count| count <= MAX_RANGES)?;
    if rest.len() != count * size_of::<Range>() {
        return None;
    }
    // The buffer need not be aligned for them.
    let mut ranges = rest.chunks_exact(size_of::<Range>()).map(Range::read_from_bytes);
    let first = ranges.by_ref().take(readable).collect::<Result<_, _>>().ok()?;
    Some((request.token, first, ranges.collect::<Result<_, _>>().ok()?))
}

//! The threads that serve a share. One of them has the turn: it waits for requests, and carries out
//! at once those that take less time than waking a thread. Before a request that may take long it
//! gives the turn to another thread.
//!
//! If there is a core to spare, and requests have come in quick succession, the thread polls for
//! the next one for a moment before it sleeps: the guest's programs mostly wait for one request
//! before they make the next.

use std::io;
use std::sync::{Arc, Mutex};

use locks::Unpoisoned;
use zerocopy::{FromBytes, IntoBytes};

use super::dispatch::{self, Pace};
use super::nine::{self, Fids, Flight, Message};
use super::request::Ask;
use super::share::Share;
use crate::limits::{MAX_RANGES, MAX_VAIN_WATCHES, SHARE_THREADS, WATCH_TIMEOUT};
use crate::message::{Range, Reply, Request};
use crate::monotonic_nanoseconds;
use crate::ring::{self, Notifier, Reader, Writer};

/// Where a share's requests come from and its replies go to.
struct Line {
    /// Held by who waits for a request.
    turn: Mutex<Reader>,
    replies: Mutex<Writer>,
    notifier: Notifier,
}

/// Start a share's threads; they end with the other end of the line.
pub fn start(share: Arc<Share>, (replies, requests, notifier): ring::End) -> io::Result<()> {
    let line = Arc::new(Line { turn: requests.into(), replies: replies.into(), notifier });
    for _ in 0..SHARE_THREADS {
        let (share, line) = (Arc::clone(&share), Arc::clone(&line));
        std::thread::Builder::new().name("files".to_owned()).spawn(move || {
            let mut worker = Worker { share: &share, line: &line, vain: 0 };
            let mut bytes = Vec::new();
            while worker.take_turn(&mut bytes).is_some() {}
            // Who waits here, and the other side, find the same.
            line.notifier.shut();
        })?;
    }
    Ok(())
}

/// A request, in the language of the guest's driver.
enum Question<'a> {
    Fuse(Ask<'a>),
    Nine(&'a Fids, Message<'a>),
}

impl<'a> Question<'a> {
    fn of(share: &'a Share, readable: &[Range], writable: &[Range]) -> io::Result<Self> {
        match &share.fids {
            None => Ask::new(share.memory(), readable, writable).map(Self::Fuse),
            Some(fids) => Message::new(share.memory(), readable, writable)
                .map(|message| Self::Nine(fids, message)),
        }
    }

    fn takes_off(&self) -> Option<Flight<'a>> {
        match self {
            Self::Nine(fids, message) if !message.is_flush() => Some(fids.take_off(message.tag)),
            _ => None,
        }
    }

    fn pace(&self) -> Pace {
        match self {
            Self::Fuse(ask) => dispatch::pace(ask),
            Self::Nine(_, message) => message.pace(),
        }
    }

    fn carry_out(&mut self, share: &Share) -> usize {
        match self {
            Self::Fuse(ask) => dispatch::carry_out(share, ask),
            Self::Nine(fids, message) => nine::carry_out(share, fids, message),
        }
    }
}

struct Worker<'a> {
    share: &'a Share,
    line: &'a Line,
    /// How often a watch has been in vain since a request came early.
    vain: u32,
}

impl Worker<'_> {
    /// Serve until a request is slow, or there are no more: then it is none.
    fn take_turn(&mut self, bytes: &mut Vec<u8>) -> Option<()> {
        let mut turn = self.line.turn.lock().unpoisoned();
        loop {
            self.receive(&mut turn, bytes)?;
            // A domain's process that does not make sense is not what it was, and gets nothing more.
            let (token, readable, writable) = understand(bytes)?;
            let question = Question::of(self.share, &readable, &writable);
            let Ok(mut question) = question else {
                // There is no question, or no place for an answer.
                self.reply(token, 0)?;
                continue;
            };
            // Until it is answered, whoever calls it back waits.
            let _flight = question.takes_off();
            if question.pace() == Pace::Slow {
                drop(turn);
                let done = question.carry_out(self.share);
                return self.reply(token, done);
            }
            let done = question.carry_out(self.share);
            self.reply(token, done)?;
        }
    }

    /// There is room for more replies than a device has requests.
    fn reply(&self, token: u64, bytes: usize) -> Option<()> {
        let reply = Reply { token, bytes: bytes as u64 };
        self.line.notifier.say_core();
        let is_sent = self.line.replies.lock().unpoisoned().put(reply.as_bytes()).ok()?;
        self.line.notifier.notify();
        is_sent.then_some(())
    }

    /// The next message; none if there will be no more.
    fn receive(&mut self, requests: &mut Reader, bytes: &mut Vec<u8>) -> Option<()> {
        let start = monotonic_nanoseconds();
        loop {
            if requests.take(bytes).ok()? {
                if is_early(bytes, start) {
                    self.vain = 0;
                }
                return Some(());
            }
            if self.vain < MAX_VAIN_WATCHES && self.line.notifier.may_watch() {
                if host::watch(WATCH_TIMEOUT, || requests.has_message()) {
                    continue;
                }
                self.vain += 1;
            }
            self.line.notifier.set_asleep(true);
            if !requests.has_message() && !self.line.notifier.wait() {
                return None;
            }
        }
    }
}

/// Whether a message was sent so early that a watch from `start` on would have met it. When it was *taken* says
/// less: the thread may have been woken for it, which can take longer than a watch, and would then never be tried
/// again.
fn is_early(bytes: &[u8], start: u64) -> bool {
    let request = Request::read_from_prefix(bytes);
    request.is_ok_and(|(request, _)| {
        request.sent < start.saturating_add(WATCH_TIMEOUT.as_nanos() as u64)
    })
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

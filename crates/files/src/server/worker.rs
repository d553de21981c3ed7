//! The threads that serve a share. One of them at a time waits for a request. If the request may take
//! long, it lets another one wait before it carries it out; the others it carries out at once,
//! because waking a thread costs more than they do.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

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

/// Start a share's threads; they end when the other end of the socket is closed.
pub fn start(share: Arc<Share>, socket: OwnedFd) -> io::Result<()> {
    let line = Arc::new(Line { socket, turn: Mutex::new(()) });
    for _ in 0..THREADS {
        let (share, line) = (Arc::clone(&share), Arc::clone(&line));
        std::thread::Builder::new().name("files".to_owned()).spawn(move || {
            let mut bytes = vec![0; MAX_MESSAGE_BYTES];
            while serve_one(&share, &line, &mut bytes) {}
        })?;
    }
    Ok(())
}

/// Wait for a request and carry it out; false when there are no more.
fn serve_one(share: &Share, line: &Line, bytes: &mut [u8]) -> bool {
    let turn = line.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let length = match recv(&line.socket, &mut *bytes, RecvFlags::empty()) {
        Ok((0, _)) => return false,
        Ok((length, _)) => length,
        Err(Errno::INTR) => return true,
        Err(_) => return false,
    };
    let Some((token, readable, writable)) = understand(&bytes[..length]) else {
        // The domain's process is not what it was. It gets nothing more.
        return false;
    };
    let ask = Ask::new(share.memory(), &readable, &writable);
    let turn = match ask.as_ref().map(dispatch::pace) {
        Ok(Pace::Slow) => {
            drop(turn);
            None
        }
        _ => Some(turn),
    };
    let done = match ask {
        Ok(mut ask) => dispatch::carry_out(share, &mut ask),
        // There is no place for an answer, or no question.
        Err(_) => 0,
    };
    drop(turn);
    let reply = Reply { token, bytes: done as u64 };
    send(&line.socket, reply.as_bytes(), SendFlags::NOSIGNAL).is_ok()
}

/// The parts of a message.
fn understand(bytes: &[u8]) -> Option<(u64, Vec<Range>, Vec<Range>)> {
    let (request, rest) = Request::read_from_prefix(bytes).ok()?;
    let (readable, writable) = (request.readable as usize, request.writable as usize);
    let count = readable.checked_add(writable).filter(|&count| count <= MAX_RANGES)?;
    let ranges = <[Range]>::ref_from_bytes(rest).ok().map(<[Range]>::to_vec);
    // The buffer need not be aligned for them.
    let ranges = ranges.or_else(|| {
        let each = rest.chunks_exact(size_of::<Range>());
        each.map(|bytes| Range::read_from_bytes(bytes).ok()).collect()
    })?;
    if ranges.len() != count {
        return None;
    }
    let (first, second) = ranges.split_at(readable);
    Some((request.token, first.to_vec(), second.to_vec()))
}

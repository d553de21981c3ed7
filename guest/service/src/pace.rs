//! When init reads a command's output: at once, unless the command writes many small pieces in a
//! row.
//!
//! Each piece costs two context switches, a frame and a request to the host, however small it is.
//! So init leaves a command that goes on writing small pieces alone for a moment, in which the
//! command fills its pipe. A user who waits for an answer does not notice: a piece that comes after
//! some input, or after a pause, is read at once.
//!
//! The order of the two output streams is kept: before init reads one of them, it reads the other
//! if that one rests.

use std::time::{Duration, Instant};

use protocol::PAYLOAD_MAX_BYTES;

use crate::stream::Stream;

/// Pieces that come closer together than this are in a row; so long a stream rests.
const REST: Duration = Duration::from_millis(1);

/// So many small ones in a row are read at once.
const QUICK_MAX: u32 = 4;

/// What is not small.
const LARGE_BYTES: usize = PAYLOAD_MAX_BYTES / 2;

/// How fast a command's output comes.
#[derive(Debug, Default)]
pub struct Pace {
    /// The stream that was read last, and when.
    last: Option<(Stream, Instant)>,
    /// Small pieces of it in a row.
    quick: u32,
}

impl Pace {
    /// A piece of so many bytes has been read.
    pub fn note_piece(&mut self, stream: Stream, bytes: usize, now: Instant) {
        let in_a_row = self.last.is_some_and(|(last, at)| last == stream && now < at + 2 * REST);
        self.quick = match (bytes < LARGE_BYTES, in_a_row) {
            (true, true) => self.quick.saturating_add(1),
            // What has rested and is large by that goes on resting.
            (false, true) if self.quick > QUICK_MAX => self.quick,
            _ => 0,
        };
        self.last = Some((stream, now));
    }

    /// The command has been given something, to which it may answer.
    pub fn note_input(&mut self) {
        self.quick = 0;
    }

    /// The stream that rests, and until when.
    pub fn resting(&self) -> Option<(Stream, Instant)> {
        let (stream, at) = self.last.filter(|_| self.quick > QUICK_MAX)?;
        Some((stream, at + REST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether stdout rests after pieces of these sizes, at these times in microseconds.
    fn rests(pieces: &[(usize, u64)]) -> bool {
        let (mut pace, start) = (Pace::default(), Instant::now());
        for &(bytes, at) in pieces {
            pace.note_piece(Stream::Stdout, bytes, start + Duration::from_micros(at));
        }
        pace.resting().is_some_and(|(stream, _)| stream == Stream::Stdout)
    }

    #[test]
    fn only_small_pieces_in_a_row_rest() {
        let row = |bytes, pause: u64| (0..10).map(|n| (bytes, n * pause)).collect::<Vec<_>>();
        assert!(rests(&row(100, 50)));
        assert!(!rests(&row(100, 50)[..4]), "the first ones");
        assert!(!rests(&row(100, 5000)), "with pauses");
        assert!(!rests(&row(PAYLOAD_MAX_BYTES, 50)), "large ones");
        assert!(rests(&[row(100, 50), vec![(PAYLOAD_MAX_BYTES, 1450)]].concat()), "gathered");
    }

    #[test]
    fn answers_do_not_rest() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        for _ in 0..10 {
            pace.note_input();
            pace.note_piece(Stream::Stdout, 1, now);
        }
        assert_eq!(pace.resting(), None);
        for _ in 0..10 {
            pace.note_piece(Stream::Stdout, 1, now);
            pace.note_piece(Stream::Stderr, 1, now);
        }
        assert_eq!(pace.resting(), None, "one after the other");
    }
}

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::*;
use crate::poll::{look_at, wait_for};

fn pair() -> (Duplex, Duplex) {
    let memory = Duplex::memory().expect("the host has memory");
    let (one, other) = UnixStream::pair().expect("a socket");
    let again = memory.try_clone().expect("a descriptor");
    let open = |memory, bell: UnixStream, side| Duplex::open(memory, bell.into(), side);
    let one = open(again, one, Side::First).expect("it is fine");
    (one, open(memory, other, Side::Second).expect("it is fine"))
}

fn is_rung(end: &Duplex) -> bool {
    !look_at(&end.bell, PollFlags::IN).expect("it can be polled").is_empty()
}

const HALF: usize = DUPLEX_BYTES as usize / 2;

#[test]
fn bytes_come_in_order_in_both_directions() {
    let (mut one, mut other) = pair();
    let mut bytes = [0; 5];
    assert_eq!(one.writer.write(b"there"), Ok(5));
    assert_eq!(other.writer.write(b"back"), Ok(4));
    assert_eq!((other.reader.read(&mut bytes[..3]), &bytes[..3]), (Ok(3), &b"the"[..]));
    assert_eq!((other.reader.read(&mut bytes), &bytes[..2]), (Ok(2), &b"re"[..]));
    assert_eq!((one.reader.read(&mut bytes), &bytes[..4]), (Ok(4), &b"back"[..]));
    assert_eq!(one.reader.read(&mut bytes), Ok(0));
    assert!(!is_rung(&one) && !is_rung(&other), "nobody sleeps");
}

#[test]
fn what_is_full_takes_no_more_and_its_end_is_its_beginning() {
    let (mut one, mut other) = pair();
    let bytes: Vec<u8> = (0..3 * HALF).map(|at| (at % 251) as u8).collect();
    assert_eq!(one.writer.write(&bytes), Ok(2 * HALF));
    assert_eq!((one.writer.write(&bytes), one.writer.room()), (Ok(0), Ok(0)));
    let mut read = vec![0; 3 * HALF];
    assert_eq!(other.reader.read(&mut read[..HALF]), Ok(HALF));
    assert_eq!(one.writer.write(&bytes[2 * HALF..]), Ok(HALF));
    assert_eq!(other.reader.read(&mut read[HALF..]), Ok(2 * HALF));
    assert!(read == bytes);
}

#[test]
fn a_reader_is_rung_for_once_if_he_sleeps() {
    let (mut one, mut other) = pair();
    assert!(other.reader.sleeps());
    assert_eq!(one.writer.write(b"a"), Ok(1));
    assert_eq!(one.writer.write(b"b"), Ok(1));
    assert!(is_rung(&other) && other.bell.hush() && !is_rung(&other));
    assert!(!other.reader.sleeps(), "there is something");
    assert_eq!(other.reader.read(&mut [0; 9]), Ok(2));
    assert_eq!(one.writer.write(b"c"), Ok(1));
    assert!(!is_rung(&other), "he did not sleep");
}

#[test]
fn a_writer_is_rung_for_when_half_of_it_is_free() {
    let (mut one, mut other) = pair();
    let mut bytes = vec![0; 2 * HALF];
    assert!(!one.writer.sleeps(), "it is empty");
    assert_eq!(one.writer.write(&bytes), Ok(2 * HALF));
    assert!(one.writer.sleeps());
    assert_eq!(other.reader.read(&mut bytes[..HALF - 1]), Ok(HALF - 1));
    assert!(!is_rung(&one));
    assert_eq!(other.reader.read(&mut bytes[..1]), Ok(1));
    assert!(is_rung(&one));
}

#[test]
fn what_is_put_is_seen_when_it_is_published() {
    let (mut one, mut other) = pair();
    assert_eq!(one.writer.append(&[b"a", b"", b"bc"]), Ok(true));
    assert_eq!(one.writer.append(&[&vec![0; 2 * HALF - 3], b"d"]), Ok(false), "no room");
    assert!(other.reader.sleeps() && !is_rung(&other));
    one.writer.publish();
    let mut bytes = [0; 9];
    assert!(is_rung(&other));
    assert_eq!((other.reader.read(&mut bytes), &bytes[..3]), (Ok(3), &b"abc"[..]));
}

#[test]
fn what_is_one_s_is_passed_on_from_memory_to_memory() {
    let ((mut source, mut between), (mut next, mut last)) = (pair(), pair());
    let bytes: Vec<u8> = (0..2 * HALF).map(|at| (at % 251) as u8).collect();
    let mut come = vec![0; 2 * HALF];
    // Places at which both rings begin again are in the middle of it, in either order.
    for (ahead, count) in [(0, 5), (7, HALF), (HALF, HALF + 99), (3, 2 * HALF - 9)] {
        assert_eq!(next.writer.append(&[&bytes[..ahead]]), Ok(true));
        next.writer.publish();
        assert_eq!(last.reader.read(&mut come), Ok(ahead));
        assert_eq!(source.writer.write(&bytes[..count]), Ok(count));
        assert_eq!(between.reader.peek(1, &mut come[..2]), Ok(true));
        assert_eq!(come[..2], bytes[1..3]);
        let rest = (&between.reader, 2, count - 2);
        assert_eq!(next.writer.append_from(&[b"x", b"y"], rest), Ok(true));
        between.reader.consume(count);
        next.writer.publish();
        assert_eq!(last.reader.read(&mut come), Ok(count));
        assert!(come[..2] == *b"xy" && come[2..count] == bytes[2..count], "{count}");
    }
}

#[test]
fn what_is_less_than_was_wanted_is_no_news() {
    let (mut one, mut other) = pair();
    assert_eq!(one.writer.write(b"ab"), Ok(2));
    assert!(other.reader.has_bytes());
    assert_eq!(other.reader.peek(0, &mut [0; 3]), Ok(false));
    assert!(!other.reader.has_bytes() && other.reader.sleeps());
    assert_eq!(one.writer.write(b"c"), Ok(1));
    assert!(is_rung(&other) && other.reader.has_bytes());
    let mut bytes = [0; 3];
    assert_eq!((other.reader.peek(0, &mut bytes), &bytes[..]), (Ok(true), &b"abc"[..]));
}

#[test]
fn an_end_is_heard() {
    let (one, other) = pair();
    drop(other);
    assert!(!one.bell.hush());
}

#[test]
fn a_position_that_is_impossible_ends_it() {
    let (mut one, other) = pair();
    other.writer.way.store(at::WRITTEN, DUPLEX_BYTES + 1);
    assert_eq!(one.reader.read(&mut [0]), Err(InvalidPosition));
    // More read than was written, or more unread than there is room for.
    for wrong in [1, u64::MAX - DUPLEX_BYTES] {
        other.reader.way.store(at::READ, wrong);
        assert_eq!(one.writer.room(), Err(InvalidPosition), "{wrong}");
        assert_eq!(one.writer.write(b"a"), Err(InvalidPosition), "{wrong}");
    }
}

#[test]
fn memory_that_could_shrink_is_refused() {
    let memory = memfd_create("plain", MemfdFlags::CLOEXEC).expect("the host has memory");
    ftruncate(&memory, ALL_BYTES).expect("there is room");
    let (bell, _other) = UnixStream::pair().expect("a socket");
    assert!(Duplex::open(memory, bell.into(), Side::First).is_err());
}

/// Take so many bytes, and sleep whenever there are none.
fn take(mut end: Duplex, bytes: usize) -> bool {
    let (mut seen, mut piece) = (0, [0; 3001]);
    let deadline = Instant::now().checked_add(Duration::from_secs(60));
    while seen < bytes {
        let count = end.reader.read(&mut piece).expect("it is fine");
        if piece[..count].iter().zip(seen..).any(|(byte, at)| *byte != (at % 251) as u8) {
            return false;
        }
        seen += count;
        if count == 0 && end.reader.sleeps() {
            if wait_for(&end.bell, PollFlags::IN, deadline).expect("a poll").is_empty() {
                return false;
            }
            assert!(end.bell.hush());
        }
    }
    true
}

#[test]
fn no_side_sleeps_for_ever() {
    const BYTES: usize = 40 << 20;
    let (mut one, other) = pair();
    let taker = std::thread::spawn(move || take(other, BYTES));
    let pattern: Vec<u8> = (0..251 * 40).map(|at| (at % 251) as u8).collect();
    let deadline = Instant::now().checked_add(Duration::from_secs(60));
    let mut written = 0;
    while written < BYTES {
        let from = written % 251;
        let most = (pattern.len() - from).min(BYTES - written);
        let count = one.writer.write(&pattern[from..from + most]).expect("it is fine");
        written += count;
        if count == 0 && one.writer.sleeps() {
            let rung = wait_for(&one.bell, PollFlags::IN, deadline).expect("a poll");
            assert!(!rung.is_empty() && one.bell.hush(), "after {written} bytes");
        }
    }
    assert!(taker.join().expect("no panic"));
}

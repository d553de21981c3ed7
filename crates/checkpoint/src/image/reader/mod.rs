//! The reader: a process that can do nothing but read one image, and say what is in it.
//!
//! An image may come from anybody. It is compressed (by C's zstd), encoded (CBOR, of which there is more than one way
//! to say anything), has a vDSO in it (an ELF file), and parents. Whoever restarts it has the rights of a user. So
//! another process takes it apart, which is confined before it sees the first byte, and says what is in it in the
//! plainest way. Who starts and confines it is no business of this crate.
//!
//! ```text
//!            the image, its parents (descriptors);  "pages M to N"
//!   keeper ------------------ requests ----------------------------> reader
//!          <----------------- answers ------------------------------
//!            "I need the parent NAME", the description; pages; or why there are none
//! ```
//!
//! *What crosses the border.* To the reader: packets of a few bytes, each with a descriptor at the most, open to be
//! read. From it: a pipe with one answer after the other, a head of five bytes (what it is, how long it is) and then
//!
//! | answer | bytes | when |
//! | --- | --- | --- |
//! | `PARENT` | a digest of 32 bytes | before the description, `MAX_PARENTS` times at most |
//! | `DESCRIPTION` | state, pod, functions of the vDSO, where pages are: types of this program, by postcard | once |
//! | `PAGES` | pages, as many bytes as the description says | for each packed run that is asked for, in order |
//! | `FAILED` | a reason | instead of any other; it is the last |
//!
//! Both ends are the same program, so there are no versions here, no names of fields, no choices: what postcard reads
//! is numbers and lengths, in the order of the types.
//!
//! *What the keeper still checks.* A reader that an image has taken over says what it likes. It gains what an image
//! could have said anyway, and nothing more:
//!
//! 1. The description is checked by the very [`check`](crate::check) that the reader has made, from the beginning.
//! 2. It is no longer than a description may be, and no longer than the files that the reader was given allow
//!    (`most`). So a small image costs the keeper little memory.
//! 3. Pages are any bytes at all, in any image. Their number is the description's. Those that are in the files as
//!    they are, the keeper copies itself, from where the description says: from files that the reader was given, and
//!    no others. All that it does with them is a checksum.
//! 4. A reason is short, and has no control characters when it is shown.
//! 5. A parent is named by the digest of its header, and the keeper hands out only files that have that digest and
//!    begin as images do. A reader cannot ask for another file without knowing its header, nor for more files than an
//!    image has parents.
//!
//! *When it fails.* It may end at any moment, by itself or by force, say too much, or nothing. All of that is
//! [`Error::Reader`](crate::Error::Reader): an answer that is cut off is none, one that is too long is not read. Who
//! waits for it waits so long for an answer, and for so many bytes a second (`READER_PATIENCE`); time in which it is
//! not waited for does not count. One that does not take its requests is not waited for at all: the next is made when
//! the last one has been answered. A reader whose keeper has gone reads the end of its requests, and ends.
//!
//! *How fast it is.* Pages that are not packed take no way round. Of the others, the reader reads and decompresses
//! some while the keeper writes those before to their place. Several threads of the keeper's may ask, each for as
//! many as the pipe between them holds; one is answered at a time.

mod client;
mod serve;

pub use client::{Ends, Reader};
pub use serve::serve;

use crate::limits::MAX_STATE_BYTES;

/// Bytes of the head of an answer: one that says what it is, and a little-endian length.
const HEAD_BYTES: usize = 5;
/// Bytes of a parent's name.
const NAME_BYTES: usize = 32;

/// What answers are.
const PARENT: u8 = 1;
const DESCRIPTION: u8 = 2;
const PAGES: u8 = 3;
const FAILED: u8 = 4;

/// What requests begin with. A file comes with a descriptor, and is the image first, and then what was asked for.
const FILE: u8 = 1;
const NO_FILE: u8 = 2;
/// Two little-endian words follow: the first run, and how many.
const RUNS: u8 = 3;
/// Bytes of a request, at the most.
const REQUEST_BYTES: usize = 9;

/// Bytes of the description of an image of files that have so many bytes, at the most. What is encoded here is not much
/// longer than there; pages that come from a parent are named there as well.
fn most(bytes: u64) -> u64 {
    const ROOM_BYTES: u64 = 1 << 20;
    bytes.saturating_mul(3).saturating_add(ROOM_BYTES).min(MAX_STATE_BYTES as u64)
}

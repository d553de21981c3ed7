//! The conversation between `biv` on the host and its init in the guest, over a virtio port, or a serial
//! line where the guest's kernel has no driver for one.
//!
//! What it is: a versioned protocol of length-prefixed frames, the same code on both ends. What it
//! is not: it reads and writes no file; both ends hand it bytes and take bytes from it.
//!
//! A conversation runs like this (`>` is from the guest, `<` from the host):
//!
//! ```text
//! > MAGIC Hello{version,window}     the line is ready now; the host may speak
//! < Mounts{bytes} Devices{bytes} Hostname{bytes} Prepare    what the system is to have, in as many parts as it takes
//! < Order{bytes} ... Start          what to run, in as many parts as it takes
//! > Started
//! < Stdin{bytes} StdinEnd Signal{n} WindowSize{r,c}
//! > Stdout{bytes} Stderr{bytes}
//! > Exited{status}                  or Signaled{n}
//! < Close                           the host has heard that of the first session; the guest powers off
//! ```
//!
//! A guest that cannot have what it is to have answers `Prepare` by `Unprepared{text}`, and ends. Everything in
//! the list of mounts is needed; the list of devices says what the guest can do without.
//!
//! A machine may have a process 1 of its own, such as systemd, which is ordered by `Order` and `Start` of [`LINE`]: the
//! former before `Prepare`, the latter after it. The host says nothing more then. The guest's init starts an *agent*,
//! which carries on the conversation from its beginning over the same line, and executes the program:
//!
//! ```text
//! < Mounts{bytes} Devices{bytes} Order{bytes} Prepare Start     the last three of the line itself
//! > MAGIC Hello{version,window}     the agent; all counting starts from zero, on both sides
//! > Started                         of the line: the program is process 1 now (or Unprepared{text})
//! ```
//!
//! The host greets back with `MAGIC`, since what it has said before may come first. There is no first
//! command, and other sessions have the numbers above [`FIRST`]. When such a machine reboots,
//! init greets once more, and is told everything again.
//!
//! In a pod, init says `Streams` after `Started`, or before that, if the order is for a process to be adopted: then it
//! says `Started` after `Adopted`.
//!
//! That is one *session*: a command and its streams. There may be several at once; each frame says of
//! which it is. Number [`LINE`] is that of the line itself, [`FIRST`] that of the command that the
//! machine was started for; others begin with their `Order`, and their number is free again after their
//! `Exited` or `Signaled`. What still comes for a session that has ended is ignored.
//!
//! What rules it:
//!
//! 1. *Nobody is trusted.* The guest may have been taken over and the line may be noisy: decoding
//!    any bytes ends in a [`Frame`] or an [`Error`], never in a panic and never in more memory than
//!    [`limits`](crate) allow.
//! 2. *Nothing is lost.* A serial line drops what finds no room. Each end therefore sends no more
//!    than a window of bytes that the other has not acknowledged by a [`Frame::Credit`]; see
//!    [`Window`]. Each session has its own, so that none can hold up another; and because the guest's
//!    terminal layer drops what its init has not read, there is one for all that is on its way to the
//!    guest, acknowledged as it is read. The guest says in its `Hello` how large that is: a port drops
//!    nothing and has a large one. Frames carry a sequence number, so that a loss would be noticed.
//! 3. *Data never holds up control.* Part of the host's window is kept back for signals and sizes,
//!    so that a command that does not read its standard input can still be interrupted; and what is
//!    passed on by somebody in between, signals and sizes pass before input that still waits.

#![forbid(unsafe_code)]

pub mod copy;
pub mod devices;
mod frame;
pub mod mounts;
mod order;
mod streams;
mod time;
mod window;

pub use frame::{Decoder, Encoder, Error, Frame, Output, Progress, hello};
pub use order::{Order, OrderError};
pub use streams::{STREAMS_BYTES, Streams};
pub use time::{Time, nanoseconds};
pub use window::{Receipts, Window};

/// The version that this code speaks. Both ends come from one build, so no other is accepted.
pub const VERSION: u16 = 7;

/// What the guest sends before its first frame. Whatever is on the line before it is noise.
pub const MAGIC: [u8; 8] = *b"\x02BIVOUAC";

/// Noise that the host accepts in front of [`MAGIC`].
pub const NOISE_MAX_BYTES: usize = 64 * 1024;

/// Kind, sequence number, payload length and session of a frame.
pub const HEADER_BYTES: usize = 6;

/// The session of frames that are about the line.
pub const LINE: u16 = 0;

/// The session of the command that the machine was started for.
pub const FIRST: u16 = 1;

/// The highest number of a session: how many there can be at once.
pub const SESSIONS_MAX: u16 = 64;

/// The largest frame: what Linux's driver of virtio ports sends as one request (32 KiB,
/// `port_fops_write` in drivers/char/virtio_console.c).
pub const FRAME_MAX_BYTES: usize = 32 * 1024;

/// The largest payload of one frame.
pub const PAYLOAD_MAX_BYTES: usize = FRAME_MAX_BYTES - HEADER_BYTES;

/// The largest encoded [`Order`]; Linux refuses more than about 2 MiB of arguments anyway.
pub const ORDER_MAX_BYTES: usize = 2 * 1024 * 1024;

/// As much of an order or a list as a host says in one frame: little for a serial line.
pub const PART_BYTES: usize = 4096;

/// Bytes on their way to a session's command that have not reached it.
pub const WINDOW_TO_GUEST_BYTES: u32 = 1 << 20;

/// Bytes on their way to the guest over a serial line, of all sessions, that its init has not read. The
/// guest's terminal layer holds 64 KiB for a line whose reader is late.
pub const WINDOW_OF_SERIAL_BYTES: u32 = 48 * 1024;

/// The same over a virtio port, whose driver leaves what has not been read to the host.
pub const WINDOW_OF_PORT_BYTES: u32 = 2 << 20;

/// Bytes of a session on their way to the host that it has not acknowledged.
pub const WINDOW_TO_HOST_BYTES: u32 = 1 << 20;

/// What [`Frame::Stdin`] must leave of the window to the guest, for signals and sizes.
pub const CONTROL_RESERVE_BYTES: u32 = 1024;

//! Frames: kind (1 byte), sequence number (1 byte), payload length (2 bytes, little-endian), session
//! (2 bytes, little-endian), payload. The sequence number counts frames from zero, modulo 256, in each
//! direction, whatever their session.

use crate::streams::{STREAMS_BYTES, Streams};
use crate::time::{TIME_BYTES, Time};
use crate::{FIRST, HEADER_BYTES, LINE, MAGIC, NOISE_MAX_BYTES, PAYLOAD_MAX_BYTES, VERSION};

/// One message. The direction is part of the meaning; each end refuses what only it may say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Guest: the first frame; the line is ready and the host may speak.
    Hello {
        /// The [`VERSION`] that the guest speaks.
        version: u16,
        /// Bytes that may be on their way to the guest.
        window: u32,
    },
    /// Host: the next part of an encoded [`crate::Order`]; of [`LINE`], of that for process 1.
    Order(Vec<u8>),
    /// Host: the order is complete; run it.
    Start,
    /// Guest: the command is running.
    Started,
    /// Host: bytes for the command's standard input.
    Stdin(Vec<u8>),
    /// Host: the end of standard input.
    StdinEnd,
    /// Host: send this signal to the command's process group.
    Signal(u8),
    /// Host: the terminal has this size now.
    WindowSize {
        /// Lines.
        rows: u16,
        /// Characters in a line.
        columns: u16,
    },
    /// Guest: bytes from the command's standard output (or from its terminal).
    Stdout(Vec<u8>),
    /// Guest: bytes from the command's standard error.
    Stderr(Vec<u8>),
    /// Guest: the command ended with this status.
    Exited(u8),
    /// Guest: the command was ended by this signal.
    Signaled(u8),
    /// Either: so many bytes of the other's frames have been dealt with. Of [`LINE`], the guest has
    /// taken them from the line.
    Credit(u32),
    /// Host: nobody listens to this session any more; its command is hung up on. After the end of the
    /// first one, the host has heard of that.
    Close,
    /// Host, of [`LINE`]: ask the commands to end, and switch off when the first one has.
    Terminate,
    /// Host, of [`LINE`]: how late it is.
    Time(Time),
    /// Host, of [`LINE`]: whether somebody sits at the virtio console, who is to find a shell there.
    Console(bool),
    /// Host, of [`LINE`]: the next part of a list of [`crate::mounts`].
    Mounts(Vec<u8>),
    /// Host, of [`LINE`]: a list of [`crate::devices`].
    Devices(Vec<u8>),
    /// Host, of [`LINE`]: the host name that the system is to have, instead of what its files say.
    Hostname(Vec<u8>),
    /// Host, of [`LINE`]: the lists are complete; prepare the system.
    Prepare,
    /// Host, of [`LINE`]: random bytes that nobody else has. This machine may be one of several that go
    /// on from the same state.
    Seed(Vec<u8>),
    /// Host, of [`LINE`]: say [`Frame::Synchronized`] when everything before this has been read.
    Synchronize,
    /// Guest, of [`LINE`]: it has.
    Synchronized,
    /// Guest, of [`LINE`], the answer to [`Frame::Prepare`] if that cannot be done: what is missing, as
    /// text. The guest runs no command and switches itself off.
    Unprepared(Vec<u8>),
    /// A pod's init, of [`LINE`]: the first command has these streams. If that is to be adopted, they wait for it.
    Streams(Streams),
    /// A pod's keeper, of [`LINE`]: the process that was to be adopted as the first command has taken its streams.
    Adopted,
}

/// Why bytes are not a conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// [`NOISE_MAX_BYTES`] went by without [`MAGIC`].
    #[error("no greeting on the guest channel, only noise; is this guest's init from this biv?")]
    NoGreeting,
    /// A frame kind that is not in the protocol.
    #[error("unknown frame kind {0:#04x} on the guest channel")]
    Kind(u8),
    /// A gap in the sequence: bytes were lost.
    #[error("guest channel lost data: frame {found} where {expected} was due")]
    Sequence {
        /// The number that was due.
        expected: u8,
        /// The number that came.
        found: u8,
    },
    /// A payload that its kind cannot have.
    #[error("frame kind {kind:#04x} on the guest channel with {length} bytes of payload")]
    Length {
        /// The frame's kind byte.
        kind: u8,
        /// The length that it claims.
        length: usize,
    },
    /// The other end speaks another version.
    #[error("guest init speaks version {0} of the channel protocol, biv speaks {VERSION}")]
    Version(u16),
}

impl Frame {
    /// The kind byte. The host's kinds are below 0x80, the guest's above, `Credit` is both.
    fn kind(&self) -> u8 {
        match self {
            Frame::Credit(_) => 0x00,
            Frame::Order(_) => 0x01,
            Frame::Start => 0x02,
            Frame::Stdin(_) => 0x03,
            Frame::StdinEnd => 0x04,
            Frame::Signal(_) => 0x05,
            Frame::WindowSize { .. } => 0x06,
            Frame::Close => 0x07,
            Frame::Terminate => 0x08,
            Frame::Time(_) => 0x09,
            Frame::Console(_) => 0x0a,
            Frame::Mounts(_) => 0x0b,
            Frame::Prepare => 0x0c,
            Frame::Seed(_) => 0x0d,
            Frame::Synchronize => 0x0e,
            Frame::Devices(_) => 0x20,
            Frame::Adopted => 0x21,
            Frame::Hostname(_) => 0x22,
            Frame::Hello { .. } => 0x80,
            Frame::Started => 0x81,
            Frame::Stdout(_) => 0x82,
            Frame::Stderr(_) => 0x83,
            Frame::Exited(_) => 0x84,
            Frame::Signaled(_) => 0x85,
            Frame::Synchronized => 0x86,
            Frame::Unprepared(_) => 0xa0,
            Frame::Streams(_) => 0xa1,
        }
    }

    fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Hello { version, window } => {
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&window.to_le_bytes());
            }
            Frame::Order(bytes)
            | Frame::Mounts(bytes)
            | Frame::Devices(bytes)
            | Frame::Hostname(bytes)
            | Frame::Unprepared(bytes)
            | Frame::Seed(bytes)
            | Frame::Stdin(bytes)
            | Frame::Stdout(bytes)
            | Frame::Stderr(bytes) => out.extend_from_slice(bytes),
            Frame::Start | Frame::Started | Frame::StdinEnd | Frame::Close | Frame::Terminate => {}
            Frame::Prepare | Frame::Synchronize | Frame::Synchronized | Frame::Adopted => {}
            Frame::Signal(byte) | Frame::Exited(byte) | Frame::Signaled(byte) => out.push(*byte),
            Frame::Console(is_wanted) => out.push(u8::from(*is_wanted)),
            Frame::WindowSize { rows, columns } => {
                out.extend_from_slice(&rows.to_le_bytes());
                out.extend_from_slice(&columns.to_le_bytes());
            }
            Frame::Credit(bytes) => out.extend_from_slice(&bytes.to_le_bytes()),
            Frame::Time(time) => out.extend_from_slice(&time.to_bytes()),
            Frame::Streams(streams) => out.extend_from_slice(&streams.to_bytes()),
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Frame, Error> {
        let wrong = || Error::Length { kind, length: payload.len() };
        let byte = || match payload {
            [byte] => Ok(*byte),
            _ => Err(wrong()),
        };
        let empty = |frame| if payload.is_empty() { Ok(frame) } else { Err(wrong()) };
        match kind {
            0x00 => Ok(Frame::Credit(u32::from_le_bytes(payload.try_into().map_err(|_| wrong())?))),
            0x01 => Ok(Frame::Order(payload.to_vec())),
            0x02 => empty(Frame::Start),
            0x03 => Ok(Frame::Stdin(payload.to_vec())),
            0x04 => empty(Frame::StdinEnd),
            0x05 => byte().map(Frame::Signal),
            0x06 => match payload {
                [r0, r1, c0, c1] => Ok(Frame::WindowSize {
                    rows: u16::from_le_bytes([*r0, *r1]),
                    columns: u16::from_le_bytes([*c0, *c1]),
                }),
                _ => Err(wrong()),
            },
            0x07 => empty(Frame::Close),
            0x08 => empty(Frame::Terminate),
            0x09 => Ok(Frame::Time(Time::from_bytes(payload.try_into().map_err(|_| wrong())?))),
            0x0a => byte().map(|byte| Frame::Console(byte != 0)),
            0x0b => Ok(Frame::Mounts(payload.to_vec())),
            0x0c => empty(Frame::Prepare),
            0x0d => Ok(Frame::Seed(payload.to_vec())),
            0x0e => empty(Frame::Synchronize),
            0x20 => Ok(Frame::Devices(payload.to_vec())),
            0x21 => empty(Frame::Adopted),
            0x22 => Ok(Frame::Hostname(payload.to_vec())),
            0x80 => match payload {
                [v0, v1, w0, w1, w2, w3] => Ok(Frame::Hello {
                    version: u16::from_le_bytes([*v0, *v1]),
                    window: u32::from_le_bytes([*w0, *w1, *w2, *w3]),
                }),
                // Of another version, only that is known.
                [v0, v1, ..] if u16::from_le_bytes([*v0, *v1]) != VERSION => {
                    Err(Error::Version(u16::from_le_bytes([*v0, *v1])))
                }
                _ => Err(wrong()),
            },
            0x81 => empty(Frame::Started),
            0x82 => Ok(Frame::Stdout(payload.to_vec())),
            0x83 => Ok(Frame::Stderr(payload.to_vec())),
            0x84 => byte().map(Frame::Exited),
            0x85 => byte().map(Frame::Signaled),
            0x86 => empty(Frame::Synchronized),
            0xa0 => Ok(Frame::Unprepared(payload.to_vec())),
            0xa1 => {
                Ok(Frame::Streams(Streams::from_bytes(payload.try_into().map_err(|_| wrong())?)))
            }
            _ => Err(Error::Kind(kind)),
        }
    }

    /// Bytes on the line: what a [`crate::Window`] is charged.
    #[must_use]
    pub fn wire_bytes(&self) -> u32 {
        let payload = match self {
            Frame::Order(bytes)
            | Frame::Mounts(bytes)
            | Frame::Devices(bytes)
            | Frame::Hostname(bytes)
            | Frame::Unprepared(bytes)
            | Frame::Seed(bytes)
            | Frame::Stdin(bytes)
            | Frame::Stdout(bytes)
            | Frame::Stderr(bytes) => bytes.len(),
            Frame::Start | Frame::Started | Frame::StdinEnd | Frame::Close | Frame::Terminate => 0,
            Frame::Prepare | Frame::Synchronize | Frame::Synchronized | Frame::Adopted => 0,
            Frame::Signal(_) | Frame::Exited(_) | Frame::Signaled(_) | Frame::Console(_) => 1,
            Frame::Hello { .. } => 6,
            Frame::WindowSize { .. } | Frame::Credit(_) => 4,
            Frame::Time(_) => TIME_BYTES,
            Frame::Streams(_) => STREAMS_BYTES,
        };
        u32::try_from(HEADER_BYTES + payload).unwrap_or(u32::MAX)
    }
}

/// What the guest sends first: the magic bytes and its [`Frame::Hello`], with the window of its line.
pub fn hello(window: u32, encoder: &mut Encoder, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    encoder.put_to(LINE, &Frame::Hello { version: VERSION, window }, out);
}

/// How far one direction of a conversation has got, for whoever goes on with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of the next frame.
    pub sequence: u8,
    /// What has come of it.
    pub received: Vec<u8>,
}

/// Turns frames into bytes and numbers them.
#[derive(Debug, Default)]
pub struct Encoder {
    sequence: u8,
}

impl Encoder {
    /// One whose next frame has this number.
    #[must_use]
    pub fn going_on(sequence: u8) -> Encoder {
        Encoder { sequence }
    }

    /// The number of the next frame.
    #[must_use]
    pub fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Appends `frame` of the one session that there is to `out`.
    ///
    /// # Panics
    ///
    /// As [`Encoder::put_to`].
    pub fn put(&mut self, frame: &Frame, out: &mut Vec<u8>) {
        self.put_to(FIRST, frame, out);
    }

    /// Appends a frame with what `read` puts into a buffer of at most `most` bytes, so that it is not copied;
    /// none if that is nothing. Returns how much it was.
    ///
    /// # Errors
    ///
    /// Those of `read`; nothing has been appended then.
    pub fn read_to<E>(
        &mut self,
        (session, output): (u16, Output),
        out: &mut Vec<u8>,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let start = out.len();
        let frame = match output {
            Output::Stdout => Frame::Stdout(Vec::new()),
            Output::Stderr => Frame::Stderr(Vec::new()),
        };
        let before = self.sequence;
        self.put_to(session, &frame, out);
        let data = out.len();
        out.resize(data + most.min(PAYLOAD_MAX_BYTES), 0);
        let result = read(&mut out[data..]);
        let count = *result.as_ref().unwrap_or(&0);
        if count == 0 {
            out.truncate(start);
            self.sequence = before;
        } else {
            out.truncate(data + count);
            let length = (count as u16).to_le_bytes();
            out[start + 2..start + 4].copy_from_slice(&length);
        }
        result
    }

    /// Appends `frame` of `session` to `out`.
    ///
    /// # Panics
    ///
    /// If the payload is longer than [`PAYLOAD_MAX_BYTES`]: the caller cuts data into frames.
    pub fn put_to(&mut self, session: u16, frame: &Frame, out: &mut Vec<u8>) {
        let start = out.len();
        let [low, high] = session.to_le_bytes();
        out.extend_from_slice(&[frame.kind(), self.sequence, 0, 0, low, high]);
        frame.put_payload(out);
        let length = out.len() - start - HEADER_BYTES;
        assert!(length <= PAYLOAD_MAX_BYTES, "frame payload of {length} bytes");
        let length = (length as u16).to_le_bytes();
        out[start + 2..start + 4].copy_from_slice(&length);
        self.sequence = self.sequence.wrapping_add(1);
    }
}

/// Which output of a command a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// [`Frame::Stdout`].
    Stdout,
    /// [`Frame::Stderr`].
    Stderr,
}

/// Turns bytes into frames. Holds at most one incomplete frame beyond what was last fed.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// How much of the buffer has been decoded.
    start: usize,
    sequence: u8,
    /// How much noise may still precede [`MAGIC`]; `None` once it was seen or is not expected.
    noise_left: Option<usize>,
    /// The conversation may begin anew, with [`MAGIC`] where a frame is due.
    may_begin_anew: bool,
}

impl Decoder {
    /// For the guest: the host sends frames from the start.
    #[must_use]
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// For the host: frames begin after [`MAGIC`].
    #[must_use]
    pub fn after_greeting() -> Decoder {
        Decoder { noise_left: Some(NOISE_MAX_BYTES), ..Decoder::default() }
    }

    /// One that goes on with a conversation.
    #[must_use]
    pub fn going_on(from: Progress) -> Decoder {
        Decoder { buffer: from.received, sequence: from.sequence, ..Decoder::default() }
    }

    /// One to which whoever is at the other end may greet again, with which the counting of frames begins anew.
    #[must_use]
    pub fn with_further_greetings(self) -> Decoder {
        Decoder { may_begin_anew: true, ..self }
    }

    /// How far it has got. There has been a greeting, if one was expected.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress { sequence: self.sequence, received: self.buffer[self.start..].to_vec() }
    }

    /// Takes bytes from the line. Call [`Decoder::next_frame`] until it has no more.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..std::mem::take(&mut self.start));
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame of whatever session, if there is one. After an error the conversation
    /// is over.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        Ok(self.next_of_any()?.map(|(_, frame)| frame))
    }

    /// The next complete frame and its session, if there is one. After an error the conversation is
    /// over.
    pub fn next_of_any(&mut self) -> Result<Option<(u16, Frame)>, Error> {
        if !self.skip_noise()? {
            return Ok(None);
        }
        if !self.begin_anew() {
            return Ok(None);
        }
        let received = &self.buffer[self.start..];
        let Some(&[kind, sequence, low, high, s0, s1]) = received.first_chunk::<HEADER_BYTES>()
        else {
            return Ok(None);
        };
        if sequence != self.sequence {
            return Err(Error::Sequence { expected: self.sequence, found: sequence });
        }
        let length = usize::from(u16::from_le_bytes([low, high]));
        if length > PAYLOAD_MAX_BYTES {
            return Err(Error::Length { kind, length });
        }
        let end = HEADER_BYTES + length;
        if received.len() < end {
            return Ok(None);
        }
        let frame = Frame::decode(kind, &received[HEADER_BYTES..end])?;
        if let Frame::Hello { version, .. } = frame
            && version != VERSION
        {
            return Err(Error::Version(version));
        }
        self.start += end;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(Some((u16::from_le_bytes([s0, s1]), frame)))
    }

    /// Drops [`MAGIC`] where a frame is due, if the conversation may begin anew there; says whether frames may be
    /// read. No frame of a guest's begins like it.
    fn begin_anew(&mut self) -> bool {
        let received = &self.buffer[self.start..];
        if !self.may_begin_anew || received.first() != MAGIC.first() {
            return true;
        }
        if received.starts_with(&MAGIC) {
            self.start += MAGIC.len();
            self.sequence = 0;
            return true;
        }
        !MAGIC.starts_with(received)
    }

    /// Drops what precedes [`MAGIC`], and says whether frames may be read.
    fn skip_noise(&mut self) -> Result<bool, Error> {
        let Some(left) = self.noise_left else {
            return Ok(true);
        };
        if let Some(at) = self.buffer.windows(MAGIC.len()).position(|window| window == MAGIC) {
            self.buffer.drain(..at + MAGIC.len());
            self.noise_left = None;
            return Ok(true);
        }
        let noise = self.buffer.len().saturating_sub(MAGIC.len() - 1);
        self.buffer.drain(..noise);
        self.noise_left = Some(left.checked_sub(noise).ok_or(Error::NoGreeting)?);
        Ok(false)
    }
}

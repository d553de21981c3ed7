//! An attached client, over the control socket: at a domain's console or at
//! the streams of its command ([`crate::Hub::watch`]). It sends and receives frames of session
//! [`protocol::FIRST`], as a client that has a command run does, and gives no orders.
//!
//! 1. *Nothing waits for it.* The domain disconnects a client that does not take its output.
//! 2. *It types no more than its window*, which the domain gives back as the input is taken.
//! 3. *The end of its input changes nothing for other clients*, which may type too.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use protocol::{
    Decoder, Encoder, Frame, PAYLOAD_MAX_BYTES, Receipts, WINDOW_TO_GUEST_BYTES,
    WINDOW_TO_HOST_BYTES, Window, hello,
};
use rustix::event::PollFlags;

use session::Line;

/// How far a client may be behind: many windows, so that one which pauses for a moment stays attached.
const UNSEEN_MAX_BYTES: usize = 8 << 20;

/// Signals and sizes of one client that wait for their turn; more are dropped.
const REQUESTS_MAX: usize = 16;

/// Those who watch one thing, at most.
pub const ATTACHED_MAX: usize = 16;

/// See above.
#[derive(Debug)]
pub struct AttachedClient {
    line: Line,
    encoder: Encoder,
    decoder: Decoder,
    /// On its way, as bytes.
    outgoing: VecDeque<u8>,
    /// What it will be shown when it has taken what is on its way.
    unseen: VecDeque<Frame>,
    unseen_bytes: usize,
    /// What may be on its way.
    room: Window,
    /// What it may type.
    window: Window,
    receipts: Receipts,
    /// What it has typed.
    typed: VecDeque<u8>,
    /// Signals and sizes.
    requests: VecDeque<Frame>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It watches.
    Here,
    /// There will be nothing more for it.
    Leaving,
    /// It has left, or broken the rules.
    Gone,
}

impl AttachedClient {
    /// The client at the other end of `line`, which has sent `received` already and is sent
    /// `preface` first.
    pub fn new(line: Line, preface: &[u8], received: &[u8]) -> AttachedClient {
        // It will be found closed if this fails.
        let _ = line.set_nonblocking();
        let (mut encoder, mut greeting) = (Encoder::default(), preface.to_vec());
        hello(WINDOW_TO_GUEST_BYTES, &mut encoder, &mut greeting);
        let mut client = AttachedClient {
            line,
            encoder,
            decoder: Decoder::new(),
            outgoing: greeting.into(),
            unseen: VecDeque::new(),
            unseen_bytes: 0,
            room: Window::new(WINDOW_TO_HOST_BYTES),
            window: Window::new(WINDOW_TO_GUEST_BYTES),
            receipts: Receipts::new(WINDOW_TO_GUEST_BYTES),
            typed: VecDeque::new(),
            requests: VecDeque::new(),
            stage: Stage::Here,
        };
        client.decoder.feed(received);
        client.show(Frame::Started);
        client.listen();
        client
    }

    /// Whether nothing more is to be done with it.
    pub fn is_gone(&self) -> bool {
        match self.stage {
            Stage::Here => false,
            Stage::Leaving => self.outgoing.is_empty() && self.unseen.is_empty(),
            Stage::Gone => true,
        }
    }

    /// What to poll, and for what.
    pub fn watched(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let input = (self.line.from(), PollFlags::IN);
        let output = (self.line.to(), PollFlags::OUT);
        [Some(input), (!self.outgoing.is_empty()).then_some(output)].into_iter().flatten()
    }

    /// Something may have come, or there may be room.
    pub fn carry(&mut self) {
        let mut buffer = [0; 4 * PAYLOAD_MAX_BYTES];
        match self.line.receive(&mut buffer) {
            Ok(None) => {}
            Ok(Some(0)) | Err(_) => self.stage = Stage::Gone,
            Ok(Some(count)) => self.decoder.feed(&buffer[..count]),
        }
        self.listen();
        self.flush();
    }

    /// Shows it what was written: frames of a guest's. [`Self::flush`] sends them.
    pub fn show(&mut self, frame: Frame) {
        if self.stage != Stage::Here {
            return;
        }
        self.unseen_bytes += frame.wire_bytes() as usize;
        self.unseen.push_back(frame);
        if self.unseen_bytes > UNSEEN_MAX_BYTES {
            self.stage = Stage::Gone;
        }
    }

    /// The same, of bytes that there were.
    pub fn show_bytes(&mut self, bytes: &[u8]) {
        bytes.chunks(PAYLOAD_MAX_BYTES).for_each(|piece| self.show(Frame::Stdout(piece.to_vec())));
        self.flush();
    }

    /// That was all.
    pub fn leave(&mut self) {
        if self.stage == Stage::Here {
            self.stage = Stage::Leaving;
        }
        self.flush();
    }

    /// What it has typed; [`Self::has_taken`] says how much of it was taken.
    pub fn typed(&mut self) -> &mut VecDeque<u8> {
        &mut self.typed
    }

    /// So many bytes of what it has typed have been taken.
    pub fn has_taken(&mut self, bytes: usize) {
        self.acknowledge(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.flush();
    }

    /// The next signal or size.
    pub fn take_request(&mut self) -> Option<Frame> {
        self.requests.pop_front()
    }

    fn acknowledge(&mut self, bytes: u32) {
        self.window.give_back(bytes);
        if let Some(credit) = self.receipts.add(bytes) {
            self.put(&Frame::Credit(credit));
        }
    }

    fn put(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        self.encoder.put(frame, &mut bytes);
        self.outgoing.extend(bytes);
    }

    /// Sends what it may be shown now.
    pub fn flush(&mut self) {
        while let Some(frame) = self.unseen.front() {
            let bytes = frame.wire_bytes();
            if !self.room.take(bytes) {
                break;
            }
            self.unseen_bytes -= bytes as usize;
            if let Some(frame) = self.unseen.pop_front() {
                self.put(&frame);
            }
        }
        if self.line.send(&mut self.outgoing).is_err() {
            self.stage = Stage::Gone;
        }
    }

    /// Hears what has come; one that breaks the rules is gone.
    fn listen(&mut self) {
        while self.stage != Stage::Gone {
            let is_good = match self.decoder.next_frame() {
                Ok(None) => return,
                Ok(Some(frame)) => self.hear(frame),
                Err(_) => false,
            };
            if !is_good {
                self.stage = Stage::Gone;
            }
        }
    }

    /// Whether the frame is one that a host sends to a command that runs, and within the window.
    fn hear(&mut self, frame: Frame) -> bool {
        let bytes = frame.wire_bytes();
        if let Frame::Credit(credit) = frame {
            self.room.give_back(credit);
            return true;
        }
        if !self.window.take(bytes) {
            return false;
        }
        match frame {
            Frame::Stdin(data) => {
                self.acknowledge(bytes - data.len() as u32);
                self.typed.extend(data);
                return true;
            }
            Frame::Signal(_) | Frame::WindowSize { .. } => {
                if self.requests.len() < REQUESTS_MAX {
                    self.requests.push_back(frame);
                }
            }
            Frame::StdinEnd => {}
            _ => return false,
        }
        self.acknowledge(bytes);
        true
    }
}

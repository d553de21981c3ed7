//! The host's end of the channel to the guest's init, in the protocol of [`protocol`].

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use nix::sys::signal::Signal;
use protocol::{
    CONTROL_RESERVE_BYTES, Decoder, Encoder, Frame, LINE, Order, Receipts, WINDOW_TO_GUEST_BYTES,
    WINDOW_TO_HOST_BYTES, Window,
};

use super::Trouble;
use super::{Ending, Error, Line, Link, Outputs};
use spec::shown;

/// How far the conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The guest has not spoken yet.
    Greeting,
    /// It has, and is being told what to do.
    Ordering,
    /// The command runs.
    Running,
    /// It has ended.
    Ended(Ending),
}

/// The channel.
#[derive(Debug)]
pub struct Channel {
    line: Line,
    encoder: Encoder,
    decoder: Decoder,
    outgoing: VecDeque<u8>,
    window: Window,
    receipts: Receipts,
    stage: Stage,
    /// The command runs, and the guest will not report that.
    has_started: bool,
    /// What is still to be sent of the order.
    order: VecDeque<u8>,
    /// Sizes and signals that came before the command was running, or found no window. Of each
    /// kind the last one counts.
    resize: Option<(u16, u16)>,
    signals: VecDeque<u8>,
    /// The end of input is to be sent when there is room.
    end_of_input: bool,
    /// What is wrong with the guest, when whoever passes on what it says has given up.
    trouble: Trouble,
    /// Called when the command runs.
    on_start: Option<OnStart>,
    /// See [`Channel::ends_unread`].
    ends_unread: bool,
    /// Somebody else has ordered what runs.
    is_watching: bool,
}

/// See [`Channel::on_start`].
struct OnStart(Box<StartHook>);

type StartHook = dyn FnOnce(&mut Outputs) -> io::Result<()>;

impl std::fmt::Debug for OnStart {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("OnStart")
    }
}

/// What is read at once.
const READ_BYTES: usize = 64 * 1024;

/// Signals that wait for room in the window; more are dropped.
const SIGNALS_MAX: usize = 16;

impl Channel {
    /// A channel over `line`, which will send `order` once the guest is up.
    pub fn new(line: Line, order: &Order) -> Result<Channel, Error> {
        line.set_nonblocking()?;
        Ok(Channel::over(line, order.encode()?.into()))
    }

    /// A channel over `line` to a command that another client has ordered.
    pub fn watching(line: Line) -> io::Result<Channel> {
        line.set_nonblocking()?;
        Ok(Channel { is_watching: true, ..Channel::over(line, VecDeque::new()) })
    }

    fn over(line: Line, order: VecDeque<u8>) -> Channel {
        Channel {
            line,
            encoder: Encoder::default(),
            decoder: Decoder::after_greeting(),
            outgoing: VecDeque::new(),
            window: Window::new(WINDOW_TO_GUEST_BYTES),
            receipts: Receipts::new(WINDOW_TO_HOST_BYTES),
            stage: Stage::Greeting,
            has_started: false,
            order,
            resize: None,
            signals: VecDeque::new(),
            end_of_input: false,
            trouble: Trouble::default(),
            on_start: None,
            ends_unread: false,
            is_watching: false,
        }
    }

    /// The channel of a command that runs already, which may be given as much as `window` has.
    pub fn going_on(line: Line, window: Window) -> Result<Channel, Error> {
        line.set_nonblocking()?;
        Ok(Channel {
            decoder: Decoder::new(),
            window,
            stage: Stage::Running,
            ..Channel::over(line, VecDeque::new())
        })
    }

    /// The command of [`Self::going_on`] goes on.
    pub fn note_started(&mut self) {
        self.has_started = true;
    }

    /// What has come over the line already.
    #[must_use]
    pub fn after(mut self, received: &[u8]) -> Channel {
        self.decoder.feed(received);
        self
    }

    /// Where it is said what is wrong with the guest, should the line end early.
    #[must_use]
    pub fn with_trouble(mut self, trouble: Trouble) -> Channel {
        self.trouble = trouble;
        self
    }

    /// Have this called when the command runs.
    #[must_use]
    pub fn on_start(
        mut self,
        act: impl FnOnce(&mut Outputs) -> io::Result<()> + 'static,
    ) -> Channel {
        self.on_start = Some(OnStart(Box::new(act)));
        self
    }

    /// For a command that does not end by SIGPIPE: if its output has no reader any more, the session ends.
    #[must_use]
    pub fn ends_unread(mut self) -> Channel {
        self.ends_unread = true;
        self
    }

    /// Whether the guest's init has spoken.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.stage != Stage::Greeting
    }

    /// Queues `frame` if the window has room for it.
    fn send(&mut self, frame: &Frame) -> bool {
        let fits = matches!(frame, Frame::Credit(_)) || self.window.take(frame.wire_bytes());
        if fits {
            let mut bytes = Vec::new();
            self.encoder.put(frame, &mut bytes);
            self.outgoing.extend(bytes);
        }
        fits
    }

    fn acknowledge(&mut self, bytes: u32) {
        if let Some(credit) = self.receipts.add(bytes) {
            self.send(&Frame::Credit(credit));
        }
    }

    /// Sends what has been waiting for its time or for room.
    fn advance(&mut self) {
        while self.stage == Stage::Ordering {
            let room = self.window.payload_room(0).min(self.order.len());
            if !self.order.is_empty() && room == 0 {
                return;
            }
            if room > 0 {
                let part = self.order.drain(..room).collect();
                self.send(&Frame::Order(part));
            } else if !self.send(&Frame::Start) {
                return;
            } else {
                self.stage = Stage::Running;
            }
        }
        if self.stage != Stage::Running {
            return;
        }
        while let Some(&number) = self.signals.front() {
            if !self.send(&Frame::Signal(number)) {
                return;
            }
            self.signals.pop_front();
        }
        if let Some((rows, columns)) = self.resize
            && self.send(&Frame::WindowSize { rows, columns })
        {
            self.resize = None;
        }
        if self.end_of_input && self.send(&Frame::StdinEnd) {
            self.end_of_input = false;
        }
    }

    fn hear(&mut self, frame: Frame, outputs: &mut Outputs) -> Result<(), Error> {
        let bytes = frame.wire_bytes();
        match (frame, self.stage) {
            (Frame::Hello { window, .. }, Stage::Greeting) => {
                self.window = Window::new(window.min(WINDOW_TO_GUEST_BYTES));
                self.stage = if self.is_watching { Stage::Running } else { Stage::Ordering };
                tracing::debug!("the guest's init is up");
                return Ok(());
            }
            (Frame::Credit(credit), _) => {
                self.window.give_back(credit);
                return Ok(());
            }
            (Frame::Stdout(data), Stage::Running) => {
                outputs.stdout.queue(&data);
                self.acknowledge(bytes - data.len() as u32);
                return Ok(());
            }
            (Frame::Stderr(data), Stage::Running) => {
                outputs.stderr.queue(&data);
                self.acknowledge(bytes - data.len() as u32);
                return Ok(());
            }
            (Frame::Started, Stage::Running) => {
                if let Some(OnStart(act)) = self.on_start.take() {
                    act(outputs)?;
                }
            }
            (Frame::Exited(status), Stage::Running) => {
                self.stage = Stage::Ended(Ending::Exited(status));
            }
            (Frame::Signaled(signal), Stage::Running) => {
                self.stage = Stage::Ended(Ending::Signaled(signal));
            }
            _ => return Err(Error::OutOfTurn),
        }
        self.acknowledge(bytes);
        Ok(())
    }

    /// Does what is to be done when the command has started, once.
    fn note_start(&mut self, outputs: &mut Outputs) -> Result<(), Error> {
        match self.on_start.take_if(|_| self.has_started) {
            Some(OnStart(act)) => Ok(act(outputs)?),
            None => Ok(()),
        }
    }
}

impl Link for Channel {
    const HAS_COMMAND: bool = true;

    fn input_end(&self) -> Option<BorrowedFd<'_>> {
        Some(self.line.from())
    }

    fn output_end(&self) -> Option<BorrowedFd<'_>> {
        (!self.outgoing.is_empty()).then_some(self.line.to())
    }

    fn exchange(&mut self, outputs: &mut Outputs) -> Result<bool, Error> {
        self.note_start(outputs)?;
        let mut buffer = [0; READ_BYTES];
        let received = self.line.receive(&mut buffer)?;
        if received == Some(0)
            && let Some(trouble) = self.trouble.get()
        {
            return Err(Error::Guest(shown::line(trouble)));
        }
        if let Some(count) = received {
            self.decoder.feed(&buffer[..count]);
        }
        while let Some((session, frame)) = self.decoder.next_of_any()? {
            // What the guest has read of its line is of interest where several share it.
            if session != LINE || !matches!(frame, Frame::Credit(_)) {
                self.hear(frame, outputs)?;
                // What the command has said since is for where its output goes now.
                self.note_start(outputs)?;
            }
        }
        // A guest that sent more than its window is not following the protocol.
        if outputs.stdout.pending() + outputs.stderr.pending() > 2 * WINDOW_TO_HOST_BYTES as usize {
            return Err(Error::OutOfTurn);
        }
        self.advance();
        self.line.send(&mut self.outgoing)?;
        Ok(received != Some(0))
    }

    fn room(&self) -> usize {
        match self.stage {
            Stage::Running => self.window.payload_room(CONTROL_RESERVE_BYTES),
            _ => 0,
        }
    }

    fn input(&mut self, bytes: &[u8]) {
        self.send(&Frame::Stdin(bytes.to_vec()));
    }

    fn end_of_input(&mut self) {
        self.end_of_input = true;
        self.advance();
    }

    fn signal(&mut self, number: u8) -> bool {
        let is_in_vain = self.ends_unread && number == Signal::SIGPIPE as u8;
        if self.stage != Stage::Running || is_in_vain {
            return false;
        }
        if self.signals.len() < SIGNALS_MAX {
            self.signals.push_back(number);
        }
        self.advance();
        true
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.resize = Some((rows, columns));
        self.advance();
    }

    fn delivered(&mut self, bytes: usize) {
        self.acknowledge(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    fn ending(&self) -> Option<Ending> {
        match self.stage {
            Stage::Ended(ending) => Some(ending),
            _ => None,
        }
    }
}

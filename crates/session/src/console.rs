//! A serial console without protocol: bytes in both directions.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use super::{Ending, Error, Line, Link, Outputs};

/// What is kept of input that the guest does not take, and of output that the user does not.
const QUEUE_MAX_BYTES: usize = 64 * 1024;

/// The host's end of a console line.
#[derive(Debug)]
pub struct Console {
    line: Line,
    outgoing: VecDeque<u8>,
    /// Bytes on their way to the user.
    undelivered: usize,
    /// Whoever is told of the size of the terminal; a serial line has none.
    window: Option<Window>,
}

/// See [`Console::with_window`].
struct Window(Box<dyn Fn(u16, u16)>);

impl std::fmt::Debug for Window {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Window")
    }
}

impl Console {
    /// A console over `line`.
    pub fn new(line: Line) -> io::Result<Console> {
        line.set_nonblocking()?;
        Ok(Console { line, outgoing: VecDeque::new(), undelivered: 0, window: None })
    }

    /// Have this called when the terminal has another size: rows and columns.
    #[must_use]
    pub fn with_window(mut self, resize: impl Fn(u16, u16) + 'static) -> Console {
        self.window = Some(Window(Box::new(resize)));
        self
    }
}

impl Link for Console {
    const HAS_COMMAND: bool = false;

    fn input_end(&self) -> Option<BorrowedFd<'_>> {
        (self.undelivered < QUEUE_MAX_BYTES).then_some(self.line.from())
    }

    fn output_end(&self) -> Option<BorrowedFd<'_>> {
        (!self.outgoing.is_empty()).then_some(self.line.to())
    }

    fn exchange(&mut self, outputs: &mut Outputs) -> Result<bool, Error> {
        self.line.send(&mut self.outgoing)?;
        let mut buffer = [0; 4096];
        let received = self.line.receive(&mut buffer)?;
        let count = received.unwrap_or(0);
        outputs.stdout.queue(&buffer[..count]);
        self.undelivered += count;
        Ok(received != Some(0))
    }

    fn room(&self) -> usize {
        QUEUE_MAX_BYTES - self.outgoing.len()
    }

    fn input(&mut self, bytes: &[u8]) {
        self.outgoing.extend(bytes);
    }

    fn end_of_input(&mut self) {
        // A console has no end.
    }

    fn signal(&mut self, _number: u8) -> bool {
        false
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        if let Some(Window(resize)) = &self.window {
            resize(rows, columns);
        }
    }

    fn delivered(&mut self, bytes: usize) {
        self.undelivered = self.undelivered.saturating_sub(bytes);
    }

    fn ending(&self) -> Option<Ending> {
        None
    }
}

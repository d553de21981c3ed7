//! Serial ports. A [`Collector`] buffers what the guest sends; a thread of each port reads what the guest is to
//! receive.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use devices::serial::{ComPort, Input};
use host::poll::{PollFlags, Poller};
use machine::board::LineInput;
use rustix::event::{EventfdFlags, eventfd};

use super::collector::Collector;
use super::{Device, Plugged, Slots};
use crate::outcome::Error;

/// Bytes read at once for the guest.
const MAX_READ_BYTES: usize = 4096;

/// Reads for one serial port; its thread ends when this is dropped.
struct Reader {
    input: Arc<dyn LineInput>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(source: OwnedFd, input: Arc<dyn LineInput>) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (its_stop, its_input) = (Arc::clone(&stop), Arc::clone(&input));
        let thread = std::thread::Builder::new()
            .name("serial input".into())
            .spawn(move || forward(&source, &its_stop, &*its_input))?;
        Ok(Self { input, stop, thread: Some(thread) })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.input.close();
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The input of a port.
struct Port(Input);

impl LineInput for Port {
    fn send(&self, bytes: &[u8]) -> bool {
        self.0.send(bytes).is_ok()
    }

    fn close(&self) {
        self.0.close();
    }
}

/// What the reader of a serial line polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Source,
    Stop,
}

/// Give the guest what comes from `source`, until that ends or `stop` says so.
fn forward(source: &OwnedFd, stop: &OwnedFd, input: &dyn LineInput) {
    let mut buffer = [0; MAX_READ_BYTES];
    loop {
        let mut poller = Poller::new();
        poller.register(Token::Source, source.as_fd(), PollFlags::IN);
        poller.register(Token::Stop, stop.as_fd(), PollFlags::IN);
        if poller.wait(None).is_err() || poller.ready().any(|(token, _)| token == Token::Stop) {
            return;
        }
        match rustix::io::read(source, &mut buffer) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if !input.send(&buffer[..count]) {
                    return;
                }
            }
        }
    }
}

/// What a serial port is connected to.
#[derive(Default)]
pub struct SerialBackend {
    /// Where the guest's input comes from; it is read on a thread of its own. Non-blocking or not.
    pub input: Option<OwnedFd>,
    /// Where the guest's output goes.
    pub output: Option<Box<dyn Write + Send>>,
}

impl fmt::Debug for SerialBackend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SerialBackend").field("input", &self.input).finish_non_exhaustive()
    }
}

/// A serial port (16550).
#[derive(Debug)]
pub struct Serial {
    port: ComPort,
    backend: SerialBackend,
}

impl Serial {
    /// The first serial port, COM1.
    #[must_use]
    pub fn first(backend: SerialBackend) -> Self {
        Self { port: ComPort::Com1, backend }
    }

    /// The second serial port, COM2.
    #[must_use]
    pub fn second(backend: SerialBackend) -> Self {
        Self { port: ComPort::Com2, backend }
    }
}

impl Device for Serial {
    fn kind(&self) -> &'static str {
        devices::serial::KIND
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let Self { port, backend } = *self;
        let collector = Collector::new(backend.output);
        let output = Box::new(collector.clone());
        let number = u8::from(port == ComPort::Com2);
        if let Some(input) = slots.board().add_line(number, output.clone()) {
            slots.plugged.polled.collectors.push(collector);
            if let Some(source) = backend.input {
                slots.keep(Reader::start(source, Arc::from(input))?);
            }
            return Ok(());
        }
        let input = devices::Serial::plug_into(slots.board(), port, output)?;
        let Plugged { polled, tables, .. } = &mut slots.plugged;
        polled.collectors.push(collector);
        match port {
            ComPort::Com1 => tables.com1 = true,
            ComPort::Com2 => tables.com2 = true,
        }
        if let Some(source) = backend.input {
            slots.keep(Reader::start(source, Arc::new(Port(input)))?);
        }
        Ok(())
    }
}

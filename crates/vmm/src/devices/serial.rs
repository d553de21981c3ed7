//! Serial lines: what the guest sends is collected and passed on in pieces, what it is to receive
//! is read on a thread of its own.
//!
//! A byte that the guest sends costs no system call. The machine flushes what has collected when
//! the processor comes back idle, after a number of exits, and at the latest after
//! [`FLUSH_AFTER`], for which the machine sets its alarm.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use devices::serial::{Input, Place};
use host::poll::{PollFlags, Poller};
use locks::Unpoisoned;
use machine::time::Nanoseconds;
use rustix::event::{EventfdFlags, eventfd};

use super::{Device, Plugged, Slots};
use crate::configuration::Error;

/// How long a byte may wait for others.
pub(crate) const FLUSH_AFTER: Nanoseconds = Nanoseconds(1_000_000);

/// Bytes that are passed on at once, whatever the time.
const MAX_COLLECTED_BYTES: usize = 16 << 10;

/// How long a sink is left alone that takes nothing just now.
const FULL_SINK_PAUSE: Duration = Duration::from_millis(1);

/// Bytes read at once for the guest.
const MAX_READ_BYTES: usize = 4096;

/// What a serial port has sent and nobody has passed on yet.
#[derive(Clone)]
pub(crate) struct Collector {
    state: Arc<Mutex<Collected>>,
}

struct Collected {
    bytes: Vec<u8>,
    sink: Option<Box<dyn Write + Send>>,
}

impl Collector {
    pub(super) fn new(sink: Option<Box<dyn Write + Send>>) -> Self {
        Self { state: Arc::new(Mutex::new(Collected { bytes: Vec::new(), sink })) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Collected) -> R) -> R {
        act(&mut self.state.lock().unpoisoned())
    }

    /// Whether something waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.with(|collected| !collected.bytes.is_empty())
    }

    /// Pass on what waits.
    pub(crate) fn flush(&self) {
        self.with(Collected::flush);
    }
}

impl Collected {
    /// A sink that fails has lost its reader; the guest goes on without.
    fn flush(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        if let Some(sink) = &mut self.sink
            && write_patiently(sink, &self.bytes).is_err()
        {
            self.sink = None;
        }
        self.bytes.clear();
    }
}

/// Write everything, also to a terminal that somebody else has made non-blocking.
fn write_patiently(sink: &mut dyn Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match sink.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(FULL_SINK_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
    sink.flush()
}

impl Write for Collector {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|collected| {
            collected.bytes.extend_from_slice(bytes);
            if collected.bytes.len() >= MAX_COLLECTED_BYTES {
                collected.flush();
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads for one serial port; its thread ends when this is dropped.
struct Reader {
    input: Input,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(source: OwnedFd, input: Input) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (its_stop, its_input) = (Arc::clone(&stop), input.clone());
        let thread = std::thread::Builder::new()
            .name("serial input".into())
            .spawn(move || forward(&source, &its_stop, &its_input))?;
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

/// What the reader of a serial line polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Polled {
    Source,
    Stop,
}

/// Give the guest what comes from `source`, until that ends or `stop` says so.
fn forward(source: &OwnedFd, stop: &OwnedFd, input: &Input) {
    let mut buffer = [0; MAX_READ_BYTES];
    loop {
        let mut poller = Poller::new();
        poller.register(Polled::Source, source.as_fd(), PollFlags::IN);
        poller.register(Polled::Stop, stop.as_fd(), PollFlags::IN);
        if poller.wait(None).is_err() || poller.ready().any(|(polled, _)| polled == Polled::Stop) {
            return;
        }
        match rustix::io::read(source, &mut buffer) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if input.send(&buffer[..count]).is_err() {
                    return;
                }
            }
        }
    }
}

/// What a serial port is connected to.
#[derive(Default)]
pub struct Line {
    /// Where the guest's input comes from; it is read on a thread of its own. Non-blocking or not.
    pub input: Option<OwnedFd>,
    /// Where the guest's output goes.
    pub output: Option<Box<dyn Write + Send>>,
}

impl fmt::Debug for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Line").field("input", &self.input).finish_non_exhaustive()
    }
}

/// A serial port (16550).
#[derive(Debug)]
pub struct Serial {
    place: Place,
    line: Line,
}

impl Serial {
    /// The first serial port, COM1.
    #[must_use]
    pub fn first(line: Line) -> Self {
        Self { place: Place::Com1, line }
    }

    /// The second serial port, COM2.
    #[must_use]
    pub fn second(line: Line) -> Self {
        Self { place: Place::Com2, line }
    }
}

impl Device for Serial {
    fn kind(&self) -> &'static str {
        devices::serial::KIND
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let Self { place, line } = *self;
        let collector = Collector::new(line.output);
        let output = Box::new(collector.clone());
        let input = devices::Serial::plug_into(slots.board(), place, output)?;
        let Plugged { polled, tables, .. } = &mut slots.plugged;
        polled.collectors.push(collector);
        match place {
            Place::Com1 => tables.com1 = true,
            Place::Com2 => tables.com2 = true,
        }
        if let Some(source) = line.input {
            slots.keep(Reader::start(source, input)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes three bytes at a time, and refuses every other call.
    #[derive(Default)]
    struct Reluctant {
        taken: Arc<Mutex<Vec<u8>>>,
        calls: u32,
    }

    impl Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            match self.calls % 4 {
                1 => Err(io::ErrorKind::WouldBlock.into()),
                3 => Err(io::ErrorKind::Interrupted.into()),
                _ => {
                    let count = bytes.len().min(3);
                    self.taken.lock().unwrap().extend_from_slice(&bytes[..count]);
                    Ok(count)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_lost_on_a_sink_that_takes_little() {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let sink = Reluctant { taken: Arc::clone(&taken), calls: 0 };
        let mut collector = Collector::new(Some(Box::new(sink)));
        collector.write_all(b"Linux version 6.1").unwrap();
        assert!(collector.is_waiting());
        assert!(taken.lock().unwrap().is_empty());
        Collector::flush(&collector);
        assert!(!collector.is_waiting());
        assert_eq!(*taken.lock().unwrap(), b"Linux version 6.1");
    }

    #[test]
    fn much_is_passed_on_without_being_asked() {
        let (mut from, to) = io::pipe().unwrap();
        let mut collector = Collector::new(Some(Box::new(to)));
        collector.write_all(&vec![b'x'; MAX_COLLECTED_BYTES - 1]).unwrap();
        assert!(collector.is_waiting());
        collector.write_all(b"y").unwrap();
        assert!(!collector.is_waiting());
        drop(collector);
        let mut got = Vec::new();
        std::io::Read::read_to_end(&mut from, &mut got).unwrap();
        assert_eq!(got.len(), MAX_COLLECTED_BYTES);
    }

    #[test]
    fn a_guest_outlives_whoever_reads_its_console() {
        let (from, to) = io::pipe().unwrap();
        drop(from);
        let mut collector = Collector::new(Some(Box::new(to)));
        for _ in 0..3 {
            collector.write_all(b"is anybody there?").unwrap();
            Collector::flush(&collector);
            assert!(!collector.is_waiting());
        }
    }
}

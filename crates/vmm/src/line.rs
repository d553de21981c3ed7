//! Serial lines: what the guest sends is collected and passed on in pieces, what it is to receive
//! is read on a thread of its own.
//!
//! A byte that the guest sends costs no system call. The machine flushes what has collected when
//! the processor comes back idle, after a number of exits, and at the latest after
//! [`FLUSH_AFTER`], for which the machine sets its alarm.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use devices::serial::{Input, Place};
use devices::{DebugExit, FwCfg, Serial};
use machine::Platform;
use machine::time::Nanoseconds;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::configuration::{Configuration, Error, Line};

/// How long a byte may wait for others.
pub(crate) const FLUSH_AFTER: Nanoseconds = Nanoseconds(1_000_000);

/// Bytes that are passed on at once, whatever the time.
const MAX_COLLECTED_BYTES: usize = 16 << 10;

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
    fn new(sink: Option<Box<dyn Write + Send>>) -> Self {
        Self { state: Arc::new(Mutex::new(Collected { bytes: Vec::new(), sink })) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Collected) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
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
            && sink.write_all(&self.bytes).and_then(|()| sink.flush()).is_err()
        {
            self.sink = None;
        }
        self.bytes.clear();
    }
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

/// Reads for one serial port.
pub(crate) struct Reader {
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

    /// Let the thread end, and wait until it has.
    pub(crate) fn stop(&mut self) {
        self.input.close();
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Give the guest what comes from `source`, until that ends or `stop` says so.
fn forward(source: &OwnedFd, stop: &OwnedFd, input: &Input) {
    let mut buffer = [0; MAX_READ_BYTES];
    loop {
        let mut polled = [
            PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !polled[1].revents().is_empty() => return,
            Ok(_) => {}
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

/// What was plugged in: the readers to stop, the collectors to flush.
pub(crate) struct Lines {
    pub(crate) readers: Vec<Reader>,
    pub(crate) collectors: Vec<Collector>,
}

/// Plug the devices in that every machine has.
///
/// # Errors
///
/// [`Error::Host`] when a thread cannot be had.
pub(crate) fn plug_in(
    platform: &mut Platform,
    configuration: &mut Configuration,
    memory: &host::GuestMemory,
) -> Result<Lines, Error> {
    let mut lines = Lines { readers: Vec::new(), collectors: Vec::new() };
    let console = std::mem::take(&mut configuration.console);
    let channel = std::mem::take(&mut configuration.channel);
    for (place, line) in [(Place::Com1, console), (Place::Com2, channel)] {
        plug_in_line(platform, place, line, &mut lines)?;
    }
    let plugged =
        FwCfg::new(Arc::new(memory.map().clone()), 1, configuration.memory)
            .plug_into(platform)
            .and_then(|()| {
                if configuration.debug_exit { DebugExit::plug_into(platform) } else { Ok(()) }
            });
    plugged.map_err(|error| Error::Tables(error.to_string()))?;
    Ok(lines)
}

fn plug_in_line(
    platform: &mut Platform,
    place: Place,
    line: Line,
    lines: &mut Lines,
) -> Result<(), Error> {
    let collector = Collector::new(line.output);
    let input = Serial::plug_into(platform, place, Box::new(collector.clone()))
        .map_err(|error| Error::Tables(error.to_string()))?;
    lines.collectors.push(collector);
    if let Some(source) = line.input {
        lines.readers.push(Reader::start(source, input)?);
    }
    Ok(())
}

//! Buffers what the guest sends through a serial port or the debug console, and passes it on in pieces.
//!
//! A byte that the guest sends costs no system call. A vCPU's thread flushes the buffer when the guest halts, after a
//! number of exits, and at the latest after [`FLUSH_AFTER`], for which the thread sets its alarm.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use locks::Unpoisoned;
use machine::time::Nanoseconds;

/// How long a byte may wait for others.
pub(crate) const FLUSH_AFTER: Nanoseconds = Nanoseconds(1_000_000);

/// Bytes that are passed on at once, whatever the time.
const MAX_COLLECTED_BYTES: usize = 16 << 10;

/// How long a sink is left alone that takes nothing just now.
const FULL_SINK_PAUSE: Duration = Duration::from_millis(1);

/// Output of a serial port that has not been flushed yet.
#[derive(Clone)]
pub(crate) struct Collector {
    state: Arc<Mutex<Collected>>,
    /// Whether the buffer has something, for who looks often.
    is_waiting: Arc<AtomicBool>,
}

struct Collected {
    bytes: Vec<u8>,
    sink: Option<Box<dyn Write + Send>>,
}

impl Collector {
    pub(super) fn new(sink: Option<Box<dyn Write + Send>>) -> Self {
        let state = Arc::new(Mutex::new(Collected { bytes: Vec::new(), sink }));
        Self { state, is_waiting: Arc::default() }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Collected) -> R) -> R {
        act(&mut self.state.lock().unpoisoned())
    }

    /// Whether something waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Pass on what waits.
    pub(crate) fn flush(&self) {
        self.with(|collected| {
            self.is_waiting.store(false, Ordering::Relaxed);
            collected.flush();
        });
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

/// Write everything, also to a terminal that another process has made non-blocking.
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
            self.is_waiting.store(!collected.bytes.is_empty(), Ordering::Relaxed);
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
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

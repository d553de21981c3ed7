//! The virtio console's terminal: two descriptors, and the size of a window that others may change.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use devices::virtio::Doorbell;
use devices::virtio::console::{self, Size, Terminal};
use devices::virtio::port;
use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::io_thread::{EventSource, Notifier};
use super::{Device, Slots};
use crate::outcome::Error;

/// What a guest's programs can find the port by.
const CHANNEL: &str = "bivouac.channel";

/// What a machine's virtio console is connected to.
#[derive(Debug)]
pub struct ConsolePort {
    /// What the guest is to receive.
    pub input: OwnedFd,
    /// What the guest sends. It blocks the guest not to read here.
    pub output: OwnedFd,
    /// Rows and columns of its window.
    pub size: (u16, u16),
}

/// The window of a console, by which its size is changed. Clones are of the same window.
#[derive(Clone)]
pub struct Window {
    /// Rows in the upper half, columns in the lower.
    size: Arc<AtomicU32>,
    notifier: Arc<Notifier>,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Window")
    }
}

impl Window {
    /// It has so many rows and columns now.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.size.store(packed(rows, columns), Ordering::SeqCst);
        self.notifier.ring(0);
    }
}

fn packed(rows: u16, columns: u16) -> u32 {
    u32::from(rows) << 16 | u32::from(columns)
}

/// See above.
struct Ends {
    sources: Arc<[EventSource]>,
    size: Arc<AtomicU32>,
    /// There will be no more input.
    is_over: bool,
}

/// A virtio console.
#[derive(Debug)]
pub struct Console(Connected);

/// A virtio port for a program in the guest, which finds it by the name `bivouac.channel`.
#[derive(Debug)]
pub struct Port(Connected);

/// The host's end of either, and what the device's thread is called by.
struct Connected {
    ends: Ends,
    notifier: Arc<Notifier>,
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Connected")
    }
}

impl Console {
    /// A console that is connected to `port`, and its window.
    ///
    /// # Errors
    ///
    /// Those of the host.
    pub fn new(port: ConsolePort) -> io::Result<(Self, Window)> {
        let (ends, notifier, window) = terminal(port)?;
        Ok((Self(Connected { ends, notifier }), window))
    }
}

impl Device for Console {
    fn kind(&self) -> &'static str {
        console::KIND.name
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let Connected { ends, notifier } = self.0;
        let device = Box::new(console::Console::new(Box::new(ends)));
        slots.add_virtio_with_thread("console", device, notifier)?;
        Ok(())
    }
}

impl Port {
    /// A port that is connected to `port`, whose window is of no interest.
    ///
    /// # Errors
    ///
    /// Those of the host.
    pub fn new(port: ConsolePort) -> io::Result<Self> {
        let (ends, notifier, _) = terminal(port)?;
        Ok(Self(Connected { ends, notifier }))
    }
}

impl Device for Port {
    fn kind(&self) -> &'static str {
        port::KIND.name
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let Connected { ends, notifier } = self.0;
        let device = port::Port::new(CHANNEL, Box::new(ends), Arc::clone(&notifier) as _);
        slots.add_virtio_with_thread("port", Box::new(device), notifier)?;
        Ok(())
    }
}

/// The console's end, what its thread is called by, and its window.
///
/// # Errors
///
/// Those of the host.
fn terminal(port: ConsolePort) -> io::Result<(Ends, Arc<Notifier>, Window)> {
    let ConsolePort { input, output, size: (rows, columns) } = port;
    for end in [&input, &output] {
        fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
    }
    let sources: Arc<[EventSource]> =
        [EventSource::new(input, [0, 0]), EventSource::new(output, [1, 1])].into_iter().collect();
    let notifier = Arc::new(Notifier::with_sources(&sources)?);
    let size = Arc::new(AtomicU32::new(packed(rows, columns)));
    let window = Window { size: Arc::clone(&size), notifier: Arc::clone(&notifier) };
    Ok((Ends { sources, size, is_over: false }, notifier, window))
}

impl Terminal for Ends {
    fn size(&self) -> Size {
        let size = self.size.load(Ordering::SeqCst);
        Size { rows: (size >> 16) as u16, columns: size as u16 }
    }

    fn show(&mut self, bytes: &[u8]) -> usize {
        match rustix::io::write(self.sources[1].file(), bytes) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            // A reader that has gone has taken everything; the guest goes on without.
            Err(_) => bytes.len(),
        }
    }

    fn typed(&mut self, buffer: &mut [u8]) -> usize {
        if self.is_over {
            return 0;
        }
        match rustix::io::read(self.sources[0].file(), buffer) {
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Ok(0) | Err(_) => {
                self.is_over = true;
                0
            }
            Ok(count) => count,
        }
    }

    fn call_when_typed(&mut self) {
        if !self.is_over {
            self.sources[0].call_when(PollFlags::IN);
        }
    }

    fn call_when_free(&mut self) {
        self.sources[1].call_when(PollFlags::OUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_is_not_taken_and_what_nobody_will_is() {
        let (input, keys) = io::pipe().unwrap();
        let (screen, output) = io::pipe().unwrap();
        let port = ConsolePort { input: input.into(), output: output.into(), size: (24, 80) };
        let (mut ends, _notifier, window) = terminal(port).unwrap();
        assert_eq!(ends.size(), Size { rows: 24, columns: 80 });
        window.resize(50, 132);
        assert_eq!(ends.size(), Size { rows: 50, columns: 132 });
        let taken: usize = (0..1000).map(|_| ends.show(&[b'x'; 4096])).sum();
        assert!((4096..1 << 20).contains(&taken), "{taken} bytes");
        drop(screen);
        assert_eq!(ends.show(b"lost"), 4);
        std::io::Write::write_all(&mut &keys, b"key").unwrap();
        let mut buffer = [0; 8];
        assert_eq!((ends.typed(&mut buffer), ends.typed(&mut buffer)), (3, 0));
        drop(keys);
        assert_eq!(ends.typed(&mut buffer), 0);
        assert!(ends.is_over);
    }
}

//! The back-end of the socket device: a socket to the process that is the other end of the guest's sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use devices::virtio::socket::{self, Gone, SocketBackend};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::io_thread::{EventSource, Notifier};
use super::{Device, Slots};
use crate::outcome::Error;

/// Sockets between a guest and programs of the host.
#[derive(Debug)]
pub struct Sockets {
    /// At its other end is a process that serves them; a stream socket.
    pub cable: OwnedFd,
    /// The guest's address, above 2.
    pub address: u32,
}

impl Device for Sockets {
    fn kind(&self) -> &'static str {
        socket::KIND.name
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let (stream, notifier) = stream(self.cable)?;
        let device = socket::Socket::new(self.address.into(), Box::new(stream));
        slots.add_virtio_with_thread("sockets", Box::new(device), notifier)?;
        Ok(())
    }
}

/// See above.
struct Stream {
    sources: Arc<[EventSource]>,
}

/// The back-end, and what its thread is woken by.
///
/// # Errors
///
/// The host has no descriptor.
fn stream(cable: OwnedFd) -> io::Result<(Stream, Arc<Notifier>)> {
    let sources: Arc<[EventSource]> = [EventSource::new(cable, [0, 1])].into_iter().collect();
    let notifier = Arc::new(Notifier::with_sources(&sources)?);
    Ok((Stream { sources }, notifier))
}

impl SocketBackend for Stream {
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(self.sources[0].file(), bytes, flags) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(_) => Err(Gone),
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Gone> {
        match recv(self.sources[0].file(), buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(Gone),
            Ok((count, _)) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(_) => Err(Gone),
        }
    }

    fn call_when_ready(&mut self, queue: usize) {
        let flags = if queue == 0 { PollFlags::IN } else { PollFlags::OUT };
        self.sources[0].call_when(flags);
    }
}

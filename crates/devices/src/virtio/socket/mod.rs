//! Sockets between the guest and programs of the host. A process at the other end of a [`SocketBackend`] implements
//! them; the device only moves packets, each with its header, between its queues and the back-end.
//!
//! 1. *No thread blocks.* A back-end that has nothing, or takes nothing, rings the doorbell when that changes.
//! 2. *A packet goes whole or not at all*: a malformed one is dropped, and a packet that the back-end has taken in
//!    part is completed, whatever the driver does meanwhile.
//! 3. *A stream is cut as the driver's buffers are.* A packet that is too long for a buffer is split into several,
//!    which means the same (5.10.6.5).
//! 4. *A packet of zeroes tells the other end that a driver starts*: the connections of the driver before are gone.

mod bits;
#[cfg(test)]
mod tests;

use machine::memory::Memory;
use vm_memory::GuestAddress;

use bits::{CLASS, Features, HOST, NUMBER, QUEUE_SIZES, RECEIVE, TRANSMIT};

use super::{Broken, Chain, Device, Kind, Segment, Serving, scatter};
use crate::limits::MAX_SOCKET_PACKET_BYTES;

pub use bits::header;

/// What it is.
pub const KIND: Kind = Kind { name: "virtio-vsock", number: NUMBER, class: CLASS };

/// The other end has gone, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Where packets go and come from: bytes in order. No method waits.
pub trait SocketBackend: Send {
    /// Send bytes; how many were taken.
    ///
    /// # Errors
    ///
    /// [`Gone`].
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Gone>;

    /// Receive bytes; how many there were.
    ///
    /// # Errors
    ///
    /// [`Gone`].
    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Gone>;

    /// Ring for the queue when the backend has something (queue 0) or takes something (queue 1). Once.
    fn call_when_ready(&mut self, queue: usize);
}

/// What is under way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// What the backend has still to take.
    pub outgoing: Vec<u8>,
    /// What has come of the next packet for the guest; its header is of what is left of it.
    pub incoming: Vec<u8>,
    /// The other end has still to hear that a driver begins.
    pub is_new: bool,
}

/// The device.
pub struct Socket {
    backend: Box<dyn SocketBackend>,
    /// The guest's address.
    address: u64,
    state: State,
    is_gone: bool,
}

impl Socket {
    /// Sockets of a guest with this address, which is above 2.
    pub fn new(address: u64, backend: Box<dyn SocketBackend>) -> Self {
        Self { backend, address, state: State::default(), is_gone: false }
    }

    fn lose_backend(&mut self) {
        if !std::mem::replace(&mut self.is_gone, true) {
            tracing::error!("the other end of the guest's sockets has gone");
        }
        self.state = State::default();
    }

    /// Send what waits; whether that is all.
    fn flush(&mut self) -> bool {
        loop {
            if self.state.outgoing.is_empty() {
                if !std::mem::take(&mut self.state.is_new) {
                    return true;
                }
                self.state.outgoing = vec![0; header::BYTES];
            }
            match self.backend.send(&self.state.outgoing) {
                Ok(0) => {
                    self.backend.call_when_ready(TRANSMIT);
                    return false;
                }
                Ok(count) => drop(self.state.outgoing.drain(..count)),
                Err(Gone) => self.lose_backend(),
            }
        }
    }

    fn transmit(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        while self.flush() && serving.pop(&mut chain)? {
            if !self.is_gone
                && let Some(packet) = packet(serving.memory(), &chain.readable, self.address)?
            {
                self.state.outgoing = packet;
            }
            serving.finish(chain.head, 0)?;
        }
        Ok(())
    }

    /// Have so much of the next packet; whether there is.
    fn have(&mut self, count: usize) -> bool {
        while self.state.incoming.len() < count {
            let start = self.state.incoming.len();
            self.state.incoming.resize(count, 0);
            let received = self.backend.receive(&mut self.state.incoming[start..]);
            self.state.incoming.truncate(start + received.unwrap_or(0));
            match received {
                Ok(0) => return false,
                Ok(_) => {}
                Err(Gone) => {
                    self.lose_backend();
                    return false;
                }
            }
        }
        true
    }

    /// Whether there is a packet for the guest.
    fn has_packet(&mut self) -> bool {
        if self.is_gone {
            return false;
        }
        if self.have(header::BYTES) {
            let length = length(&self.state.incoming) as usize;
            if length > MAX_SOCKET_PACKET_BYTES {
                self.lose_backend();
                return false;
            }
            if self.have(header::BYTES + length) {
                return true;
            }
        }
        if !self.is_gone {
            self.backend.call_when_ready(RECEIVE);
        }
        false
    }

    fn receive(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        // Without a buffer, the driver says when there is one.
        while self.has_packet() && serving.pop(&mut chain)? {
            let room = Chain::bytes(&chain.writable);
            let Some(room) = room.checked_sub(header::BYTES as u64).filter(|room| *room > 0) else {
                return Err(Broken::Request);
            };
            let incoming = &mut self.state.incoming;
            let all = incoming.len() - header::BYTES;
            let now = (room.min(all as u64)) as usize;
            set_length(incoming, now);
            let piece = &incoming[..header::BYTES + now];
            let written = scatter(serving.memory(), &chain.writable, piece)?;
            serving.finish(chain.head, written)?;
            if now == all {
                incoming.clear();
            } else {
                incoming.drain(header::BYTES..header::BYTES + now);
                set_length(incoming, all - now);
            }
        }
        Ok(())
    }
}

fn length(packet: &[u8]) -> u32 {
    let bytes = packet.get(header::LENGTH..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn set_length(packet: &mut [u8], length: usize) {
    packet[header::LENGTH..header::LENGTH + 4].copy_from_slice(&(length as u32).to_le_bytes());
}

/// The driver's packet at these segments, if it makes sense: from this address to the host, of a stream,
/// with all that its header says.
fn packet(
    memory: &dyn Memory,
    segments: &[Segment],
    address: u64,
) -> Result<Option<Vec<u8>>, Broken> {
    let room = Chain::bytes(segments).min((header::BYTES + MAX_SOCKET_PACKET_BYTES) as u64);
    let mut bytes = vec![0; room as usize];
    let mut done = 0;
    for segment in segments {
        let now = (segment.length as usize).min(bytes.len() - done);
        memory.read(GuestAddress(segment.address), &mut bytes[done..done + now])?;
        done += now;
    }
    if bytes.len() < header::BYTES {
        return Ok(None);
    }
    let is = |at: usize, value: &[u8]| bytes[at..at + value.len()] == *value;
    let makes_sense = is(header::SOURCE, &address.to_le_bytes())
        && is(header::DESTINATION, &HOST.to_le_bytes())
        && is(header::KIND, &header::STREAM.to_le_bytes());
    let length = match is(header::OPERATION, &header::DATA.to_le_bytes()) {
        true => length(&bytes) as usize,
        false => 0,
    };
    if !makes_sense || header::BYTES + length > bytes.len() {
        return Ok(None);
    }
    bytes.truncate(header::BYTES + length);
    set_length(&mut bytes, length);
    Ok(Some(bytes))
}

impl Device for Socket {
    fn kind(&self) -> Kind {
        KIND
    }

    fn features(&self) -> u64 {
        Features::STREAM.bits()
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn configuration(&self) -> Vec<u8> {
        self.address.to_le_bytes().to_vec()
    }

    fn activate(&mut self, _features: u64) {
        self.state.is_new = !self.is_gone;
    }

    fn serve(&mut self, queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        match queue {
            RECEIVE => {
                // The other end is to hear of a new driver, whether that sends something or not.
                self.flush();
                self.receive(serving)
            }
            TRANSMIT => self.transmit(serving),
            // Buffers for events, of which there are none.
            _ => Ok(()),
        }
    }

    fn reset(&mut self) {
        // What the backend has taken goes its way. The next driver knows nothing of what was for this
        // one, and says so.
    }
}

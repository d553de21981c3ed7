//! A cable of sockets for the targets that drive devices: packets come back, with what was sent as their
//! bytes, until it is cut.

use std::collections::VecDeque;

use devices::virtio::socket::{Gone, SocketBackend, header};

/// Calls until it is cut.
const CALLS: u32 = 2000;

/// The cable.
#[derive(Default)]
pub struct Mail {
    bytes: VecDeque<u8>,
    calls: u32,
}

impl Mail {
    fn use_up(&mut self) -> Result<(), Gone> {
        self.calls += 1;
        if self.calls > CALLS { Err(Gone) } else { Ok(()) }
    }
}

impl SocketBackend for Mail {
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
        self.use_up()?;
        // It is full now and then.
        let count = bytes.len() - bytes.len() / 2 * (self.calls % 3 / 2) as usize;
        let mut packet = vec![0; header::BYTES];
        packet[header::LENGTH..header::LENGTH + 4].copy_from_slice(&(count as u32).to_le_bytes());
        self.bytes.extend(packet);
        self.bytes.extend(&bytes[..count]);
        Ok(count)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Gone> {
        self.use_up()?;
        let count = buffer.len().min(self.bytes.len());
        buffer.iter_mut().zip(self.bytes.drain(..count)).for_each(|(to, from)| *to = from);
        Ok(count)
    }

    fn call_when_ready(&mut self, queue: usize) {
        assert!(queue < 2);
    }
}

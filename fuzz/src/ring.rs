//! The page of the store's ring, and the domain's side of it.

use xen_store::ring::Page;

/// Where the bytes of the two directions are, and the indices (public/io/xs_wire.h).
const BYTES: u32 = 1024;
const REQUEST_PRODUCER: usize = 2052;
const REPLY_CONSUMER: usize = 2056;
const REPLY_PRODUCER: usize = 2060;

/// See above.
#[derive(Debug)]
pub struct RingPage(Box<[u8; 4096]>);

impl Default for RingPage {
    fn default() -> Self {
        Self(Box::new([0; 4096]))
    }
}

impl RingPage {
    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|index| self.0[at + index]))
    }

    /// Write a word of the page, at a multiple of four.
    pub fn set(&mut self, at: usize, value: u32) {
        // Most of what is there is bytes; the indices are what matters.
        let at = if at % 2 == 0 { 2048 + at / 2 % 8 * 4 } else { at / 2 % 1024 * 4 };
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Put bytes into the ring of requests, whether there is room or not.
    pub fn put(&mut self, bytes: &[u8]) {
        let producer = self.word(REQUEST_PRODUCER);
        for (at, byte) in (0..).zip(bytes) {
            self.0[(producer.wrapping_add(at) % BYTES) as usize] = *byte;
        }
        let producer = producer.wrapping_add(bytes.len() as u32);
        self.0[REQUEST_PRODUCER..][..4].copy_from_slice(&producer.to_le_bytes());
    }

    /// Put a message, with its header.
    pub fn send(&mut self, kind: u32, transaction: u32, payload: &[u8]) {
        let words = [kind, 1, transaction, payload.len() as u32];
        let header: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(&header);
        self.put(&payload[..payload.len().min(BYTES as usize - header.len())]);
    }

    /// Take all answers.
    pub fn consume(&mut self) {
        let producer = self.word(REPLY_PRODUCER);
        self.0[REPLY_CONSUMER..][..4].copy_from_slice(&producer.to_le_bytes());
    }
}

impl Page for RingPage {
    fn load(&self, offset: usize) -> u32 {
        self.word(offset)
    }

    fn store(&mut self, offset: usize, value: u32) {
        self.0[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0[offset..offset + bytes.len()]);
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

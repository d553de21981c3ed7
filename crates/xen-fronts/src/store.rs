//! The page of the store's ring, and the domain's side of it (public/io/xs_wire.h).

use xen_store::ring::Page;

/// Bytes that a direction has room for.
pub const ROOM: u32 = 1024;

/// Where the answers are, behind the requests.
const ANSWERS: usize = 1024;

/// Where the indices of the two directions are.
pub const REQUEST_CONSUMER: usize = 2048;
/// See above.
pub const REQUEST_PRODUCER: usize = 2052;
/// See above.
pub const ANSWER_CONSUMER: usize = 2056;
/// See above.
pub const ANSWER_PRODUCER: usize = 2060;

/// A page that is ordinary memory.
#[derive(Debug)]
pub struct StorePage(Box<[u8; 4096]>);

impl Default for StorePage {
    fn default() -> Self {
        Self(Box::new([0; 4096]))
    }
}

impl Page for StorePage {
    fn load(&self, offset: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|index| self.0[offset + index]))
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

impl StorePage {
    /// Put as many bytes of requests as there is room for, as a domain does; how many.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let (consumer, producer) = (self.load(REQUEST_CONSUMER), self.load(REQUEST_PRODUCER));
        let room = ROOM - producer.wrapping_sub(consumer);
        let count = bytes.len().min(room as usize);
        self.put_all(&bytes[..count]);
        count
    }

    /// Put bytes of requests whether there is room or not.
    pub fn put_all(&mut self, bytes: &[u8]) {
        let producer = self.load(REQUEST_PRODUCER);
        for (index, byte) in (0..).zip(bytes) {
            self.0[(producer.wrapping_add(index) % ROOM) as usize] = *byte;
        }
        self.store(REQUEST_PRODUCER, producer.wrapping_add(bytes.len() as u32));
    }

    /// Take all answers.
    pub fn take(&mut self) -> Vec<u8> {
        let (consumer, producer) = (self.load(ANSWER_CONSUMER), self.load(ANSWER_PRODUCER));
        let count = producer.wrapping_sub(consumer);
        let at = |index: u32| ANSWERS + (consumer.wrapping_add(index) % ROOM) as usize;
        let bytes = (0..count).map(|index| self.0[at(index)]).collect();
        self.store(ANSWER_CONSUMER, producer);
        bytes
    }
}

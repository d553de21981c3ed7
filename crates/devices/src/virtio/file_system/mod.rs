//! A directory of the host, accessed by FUSE requests. A [`FileServer`], which has guest memory mapped itself, carries
//! the requests out; the device only takes them from its queues and puts the answers back. Many may be in flight.
//!
//! There may be several queues for requests, one for each processor, so that each of them is interrupted for what it
//! has asked for (Linux uses them from 6.11 on).
//!
//! When the server is gone, every request to the file system fails, and none waits for ever.

mod bits;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use machine::memory::Memory;
use machine::saved::{self, Unfit};
use vm_memory::GuestAddress;

use bits::{CLASS, NUMBER, REQUEST_QUEUE_SIZE, TAG_BYTES, URGENT_QUEUE_SIZE, header};

use super::{Broken, Chain, Device, Kind, Segment, Serving, scatter};
use crate::limits::MAX_REQUEST_QUEUES;

/// What it is.
pub const KIND: Kind = Kind { name: "virtio-fs", number: NUMBER, class: CLASS };

/// The server is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Carries requests out. Nothing here waits.
pub trait FileServer: Send {
    /// Take a request on, which asks for what FUSE calls by this number, or so it says; false if there is no
    /// room for it now, but will be after an answer.
    ///
    /// # Errors
    ///
    /// [`Gone`].
    fn submit(&mut self, token: u64, opcode: u32, chain: &Chain) -> Result<bool, Gone>;

    /// A request that has been carried out: its token, and how many bytes were written. None if there is
    /// none now.
    ///
    /// # Errors
    ///
    /// [`Gone`].
    fn take(&mut self) -> Result<Option<(u64, u32)>, Gone>;

    /// What the guest knows of the directory, for a server that goes on with it, while no request is under
    /// way.
    ///
    /// # Errors
    ///
    /// [`Gone`].
    fn save(&self) -> Result<Vec<u8>, Gone>;

    /// Go on from there.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the directory is not what it was.
    fn restore(&mut self, state: &[u8]) -> Result<(), Gone>;

    /// So many bytes of these segments have been written, and the guest has not been told.
    fn note_written(&mut self, segments: &[Segment], bytes: u32);
}

/// A request that the server has.
struct Flight {
    queue: usize,
    head: u16,
    writable: Vec<Segment>,
    /// Its number, for the answer that it gets if the server goes.
    unique: [u8; 8],
}

/// The device.
pub struct FileSystem {
    server: Box<dyn FileServer>,
    tag: String,
    queue_sizes: Vec<u16>,
    flights: HashMap<u64, Flight>,
    next: u64,
    /// What was carried out of each queue's.
    done: Vec<VecDeque<(Flight, u32)>>,
    /// What the server had no room for, of each queue's.
    waiting: Vec<VecDeque<Chain>>,
    is_gone: bool,
}

impl FileSystem {
    /// The file system of that name, of which at most 36 bytes count, with so many queues for requests, 1 to
    /// [`MAX_REQUEST_QUEUES`].
    pub fn new(tag: &str, server: Box<dyn FileServer>, queues: usize) -> Self {
        let mut queue_sizes = vec![URGENT_QUEUE_SIZE];
        queue_sizes.resize(1 + queues.clamp(1, MAX_REQUEST_QUEUES), REQUEST_QUEUE_SIZE);
        let mut device = Self {
            server,
            tag: tag.to_owned(),
            queue_sizes,
            flights: HashMap::new(),
            next: 0,
            done: Vec::new(),
            waiting: Vec::new(),
            is_gone: false,
        };
        device.reset();
        device
    }

    /// Hear what was carried out.
    fn collect(&mut self) {
        while !self.is_gone {
            match self.server.take() {
                Ok(Some((token, bytes))) => {
                    if let Some(flight) = self.flights.remove(&token) {
                        self.done[flight.queue].push_back((flight, bytes));
                    }
                }
                Ok(None) => return,
                Err(Gone) => self.is_gone = true,
            }
        }
    }

    /// Hand a request on; false if it has to wait.
    fn submit(&mut self, memory: &dyn Memory, queue: usize, chain: &Chain) -> bool {
        let token = self.next;
        let Head { opcode, unique } = Head::of(memory, &chain.readable);
        if !self.is_gone {
            match self.server.submit(token, opcode, chain) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(Gone) => self.is_gone = true,
            }
        }
        let (head, writable) = (chain.head, chain.writable.clone());
        self.next += 1;
        self.flights.insert(token, Flight { queue, head, writable, unique });
        true
    }

    /// Answer what was carried out, and what never will be.
    fn answer(&mut self, queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        while let Some((flight, bytes)) = self.done[queue].pop_front() {
            let room = Chain::bytes(&flight.writable);
            let bytes = u64::from(bytes).min(room) as u32;
            self.server.note_written(&flight.writable, bytes);
            serving.finish(flight.head, bytes)?;
        }
        if self.is_gone {
            let lost = self.flights.extract_if(|_, flight| flight.queue == queue);
            for (_, flight) in lost.collect::<Vec<_>>() {
                let length = refuse(serving.memory(), &flight)?;
                serving.finish(flight.head, length)?;
            }
        }
        Ok(())
    }
}

/// What a request says that it is.
#[derive(Default)]
struct Head {
    opcode: u32,
    unique: [u8; 8],
}

impl Head {
    /// That of the request in these segments; all zero if it has none.
    fn of(memory: &dyn Memory, readable: &[Segment]) -> Self {
        const END: usize = header::UNIQUE + 8;
        let mut bytes = [0; END];
        match readable.first() {
            Some(first) if first.length as usize >= END => {
                if memory.read(GuestAddress(first.address), &mut bytes).is_err() {
                    return Self::default();
                }
            }
            _ => return Self::default(),
        }
        let (opcode, unique) = bytes[header::OPCODE..].split_at(header::UNIQUE - header::OPCODE);
        let opcode = opcode.try_into().map_or(0, u32::from_le_bytes);
        Self { opcode, unique: unique.try_into().unwrap_or_default() }
    }
}

/// Answer that it went wrong.
fn refuse(memory: &dyn Memory, flight: &Flight) -> Result<u32, Broken> {
    if Chain::bytes(&flight.writable) < header::ANSWER_BYTES.into() {
        return Ok(0);
    }
    let error = (-header::INPUT_OUTPUT_ERROR).to_le_bytes();
    let answer = [&header::ANSWER_BYTES.to_le_bytes()[..], &error, &flight.unique].concat();
    Ok(scatter(memory, &flight.writable, &answer)?)
}

impl Device for FileSystem {
    fn kind(&self) -> Kind {
        KIND
    }

    fn features(&self) -> u64 {
        0
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn configuration(&self) -> Vec<u8> {
        let mut bytes = self.tag.as_bytes().to_vec();
        bytes.resize(TAG_BYTES, 0);
        let request_queues = self.queue_sizes.len() as u32 - 1;
        bytes.extend(request_queues.to_le_bytes());
        bytes
    }

    fn activate(&mut self, _features: u64) {}

    fn serve(&mut self, queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        self.collect();
        self.answer(queue, serving)?;
        while let Some(chain) = self.waiting[queue].pop_front() {
            if !self.submit(serving.memory(), queue, &chain) {
                self.waiting[queue].push_front(chain);
                return Ok(());
            }
        }
        let mut chain = Chain::default();
        while serving.pop(&mut chain)? {
            if !self.submit(serving.memory(), queue, &chain) {
                self.waiting[queue].push_back(chain);
                break;
            }
        }
        if self.is_gone { self.answer(queue, serving) } else { Ok(()) }
    }

    fn is_idle(&mut self) -> bool {
        self.collect();
        self.flights.is_empty() || self.is_gone
    }

    fn save(&self) -> Vec<u8> {
        saved::encode(&self.server.save().ok())
    }

    fn restore(&mut self, _: u32, state: &[u8]) -> Result<(), Unfit> {
        let known: Option<Vec<u8>> = saved::decode(state, "a shared directory")?;
        let unfit = || Unfit::State(format!("the shared directory {}", self.tag));
        let restored = known.map(|known| self.server.restore(&known));
        restored.unwrap_or(Ok(())).map_err(|Gone| unfit())
    }

    fn is_at_work(&self) -> bool {
        let is_empty = |queue: &VecDeque<Chain>| queue.is_empty();
        let all_done = self.done.iter().all(VecDeque::is_empty);
        !(self.flights.is_empty() && all_done && self.waiting.iter().all(is_empty))
    }

    fn reset(&mut self) {
        let queues = self.queue_sizes.len();
        self.flights.clear();
        self.done = (0..queues).map(|_| VecDeque::new()).collect();
        self.waiting = (0..queues).map(|_| VecDeque::new()).collect();
    }
}

//! A directory of the host, accessed by FUSE requests, or by those of 9p where the guest's kernel knows nothing else. A
//! [`FileServer`], which has guest memory mapped itself, carries the requests out; the device only takes them from its
//! queues and puts the answers back. Many may be in flight.
//!
//! There may be several queues for requests, one for each processor, so that each of them is interrupted for what it
//! has asked for (Linux uses them from 6.11 on).
//!
//! The two differ in the device's number and configuration, and in where a request says what it is ([`Protocol`]). A
//! device for 9p has one queue.
//!
//! When the server is gone, every request to the file system fails, and none waits for ever.

mod bits;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use machine::memory::Memory;
use machine::saved::{self, Unfit};
use vm_memory::GuestAddress;

use bits::{CLASS, NUMBER, REQUEST_QUEUE_SIZE, TAG_BYTES, URGENT_QUEUE_SIZE, header, nine};

use super::{Broken, Chain, Device, Kind, Segment, Serving, scatter};
use crate::limits::MAX_REQUEST_QUEUES;

/// What it is.
pub const KIND: Kind = Kind { name: "virtio-fs", number: NUMBER, class: CLASS };

/// The same for 9p.
pub const NINE_KIND: Kind = Kind { name: "virtio-9p", number: nine::NUMBER, class: CLASS };

/// What the guest's driver speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// FUSE.
    Fuse,
    /// 9P2000.L.
    Nine,
}

/// The server is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Carries requests out. Nothing here waits.
pub trait FileServer: Send {
    /// Take a request on, which asks for what FUSE calls by this number, or for the like, or so it says; false if there
    /// is no room for it now, but will be after an answer.
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
    protocol: Protocol,
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
        Self::with(Protocol::Fuse, tag, server, queue_sizes)
    }

    /// The same for 9p.
    pub fn nine(tag: &str, server: Box<dyn FileServer>) -> Self {
        Self::with(Protocol::Nine, tag, server, vec![nine::QUEUE_SIZE])
    }

    fn with(
        protocol: Protocol,
        tag: &str,
        server: Box<dyn FileServer>,
        queue_sizes: Vec<u16>,
    ) -> Self {
        let mut device = Self {
            protocol,
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
        let Head { opcode, unique } = Head::of(self.protocol, memory, &chain.readable);
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
                let length = refuse(self.protocol, serving.memory(), &flight)?;
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
    fn of(protocol: Protocol, memory: &dyn Memory, readable: &[Segment]) -> Self {
        let head = match protocol {
            Protocol::Fuse => Self::of_fuse(memory, readable),
            Protocol::Nine => Self::of_nine(memory, readable),
        };
        head.unwrap_or_default()
    }

    fn of_fuse(memory: &dyn Memory, readable: &[Segment]) -> Option<Self> {
        let bytes: [u8; header::UNIQUE + 8] = beginning(memory, readable)?;
        let (opcode, unique) = bytes[header::OPCODE..].split_at(header::UNIQUE - header::OPCODE);
        let opcode = opcode.try_into().map_or(0, u32::from_le_bytes);
        Some(Self { opcode, unique: unique.try_into().unwrap_or_default() })
    }

    fn of_nine(memory: &dyn Memory, readable: &[Segment]) -> Option<Self> {
        let bytes: [u8; nine::HEAD_BYTES] = beginning(memory, readable)?;
        let mut unique = [0; 8];
        unique[..2].copy_from_slice(&bytes[nine::TAG..]);
        Some(Self { opcode: nine::opcode(bytes[nine::KIND]), unique })
    }
}

/// The first bytes of a request, if they are in its first segment.
fn beginning<const COUNT: usize>(memory: &dyn Memory, readable: &[Segment]) -> Option<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let first = readable.first().filter(|first| first.length as usize >= COUNT)?;
    memory.read(GuestAddress(first.address), &mut bytes).ok()?;
    Some(bytes)
}

/// Answer that it went wrong.
fn refuse(protocol: Protocol, memory: &dyn Memory, flight: &Flight) -> Result<u32, Broken> {
    let answer = match protocol {
        Protocol::Fuse => {
            let error = (-header::INPUT_OUTPUT_ERROR).to_le_bytes();
            [&header::ANSWER_BYTES.to_le_bytes()[..], &error, &flight.unique].concat()
        }
        Protocol::Nine => {
            let (kind, error) = ([nine::ERROR], header::INPUT_OUTPUT_ERROR.to_le_bytes());
            let head = nine::ERROR_BYTES.to_le_bytes();
            [&head[..], &kind, &flight.unique[..2], &error].concat()
        }
    };
    if Chain::bytes(&flight.writable) < answer.len() as u64 {
        return Ok(0);
    }
    Ok(scatter(memory, &flight.writable, &answer)?)
}

impl Device for FileSystem {
    fn kind(&self) -> Kind {
        match self.protocol {
            Protocol::Fuse => KIND,
            Protocol::Nine => NINE_KIND,
        }
    }

    fn features(&self) -> u64 {
        match self.protocol {
            Protocol::Fuse => 0,
            Protocol::Nine => nine::MOUNT_TAG,
        }
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn configuration(&self) -> Vec<u8> {
        let mut bytes = self.tag.as_bytes().to_vec();
        if self.protocol == Protocol::Nine {
            bytes.truncate(TAG_BYTES);
            return [&(bytes.len() as u16).to_le_bytes()[..], &bytes].concat();
        }
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

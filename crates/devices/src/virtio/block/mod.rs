//! A disk. What keeps its bytes is handed to it (a [`Store`]) and moves them between itself and guest
//! memory.
//!
//! Requests are looked at in batches: neighbours that continue each other on the disk become one
//! [`Job`], and all that is done by then is answered by one interrupt at most. A job is done at once or
//! goes on elsewhere, while others are started; the driver is told of each as it ends, in any order
//! (5.2.6.2 promises none). What fails together is tried again one by one, so that each request is told
//! how it went.
//!
//! A driver that does not negotiate flushing expects what it has written to stay (5.2.6.2): then every
//! write is followed by a flush.

mod bits;
mod request;
mod store;
#[cfg(test)]
mod tests;

use machine::memory::Memory;

pub use bits::SECTOR_BYTES;
use bits::{
    CLASS, Features, IDENTITY_BYTES, NUMBER, QUEUE_SIZES, RANGE_BYTES, Status, UNMAP,
    configuration, kind,
};
use request::Request;
pub use store::{Failed, Job, Store};

use super::{Broken, Chain, Device, Kind, Segment, Serving, scatter};
use crate::limits::{
    MAX_BLOCK_BATCH, MAX_BLOCK_DISCARD_BYTES, MAX_BLOCK_REQUESTS, MAX_BLOCK_SEGMENTS,
    MAX_BLOCK_TRANSFER_BYTES,
};

/// The device.
pub struct Block {
    store: Box<dyn Store>,
    writes_through: bool,
    chain: Chain,
    batch: Vec<Request>,
    /// What is under way, by number.
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
    /// Requests of all tasks.
    under_way: usize,
}

/// Requests that one job answers.
struct Task {
    requests: Vec<Request>,
    /// When it has gone well, what was written is to be flushed.
    then_flush: bool,
}

impl Block {
    /// A disk whose bytes are there.
    pub fn new(store: Box<dyn Store>) -> Self {
        Self {
            store,
            writes_through: true,
            chain: Chain::default(),
            batch: Vec::new(),
            tasks: (0..MAX_BLOCK_REQUESTS).map(|_| None).collect(),
            free: (0..MAX_BLOCK_REQUESTS).collect(),
            under_way: 0,
        }
    }

    /// Start what the batch asks for.
    fn begin_batch(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut batch = std::mem::take(&mut self.batch);
        while !batch.is_empty() {
            let count = self.neighbours(&batch);
            let requests: Vec<_> = batch.drain(..count).collect();
            self.under_way += requests.len();
            self.begin(requests, serving)?;
        }
        self.batch = batch;
        Ok(())
    }

    /// Start requests that are one job, or answer one that is none.
    fn begin(&mut self, requests: Vec<Request>, serving: &mut Serving<'_>) -> Result<(), Broken> {
        match self.job(&requests, serving.memory()) {
            Ok(job) => {
                let then_flush = self.writes_through && job.writes();
                self.start(Task { requests, then_flush }, job, serving)
            }
            Err(answer) => {
                // More than one are neighbours only if they are a job.
                requests.iter().try_for_each(|request| self.answer(request, answer, serving))
            }
        }
    }

    fn start(&mut self, task: Task, job: Job, serving: &mut Serving<'_>) -> Result<(), Broken> {
        // Each task has a request of its own at least, and there are not more of these.
        let Some(number) = self.free.pop() else { return Err(Broken::Index) };
        match self.store.start(number, job) {
            None => {
                self.tasks[number] = Some(task);
                Ok(())
            }
            Some(result) => {
                self.free.push(number);
                self.end(task, result, serving)
            }
        }
    }

    /// Tell the driver of what has ended in the meantime.
    fn reap(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        while let Some((number, result)) = self.store.finished() {
            if let Some(task) = self.take(number) {
                self.end(task, result, serving)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, number: usize) -> Option<Task> {
        let task = self.tasks.get_mut(number)?.take()?;
        self.free.push(number);
        Some(task)
    }

    fn end(
        &mut self,
        task: Task,
        result: Result<(), Failed>,
        serving: &mut Serving<'_>,
    ) -> Result<(), Broken> {
        let Task { requests, then_flush } = task;
        match result {
            Ok(()) if then_flush => {
                self.start(Task { requests, then_flush: false }, Job::Flush, serving)
            }
            Ok(()) => requests.iter().try_for_each(|request| {
                self.answer(request, (Status::Fine, bytes_filled(request)), serving)
            }),
            Err(Failed) if requests.len() > 1 => {
                let mut alone = requests.into_iter().map(|request| vec![request]);
                alone.try_for_each(|requests| self.begin(requests, serving))
            }
            Err(Failed) => requests
                .iter()
                .try_for_each(|request| self.answer(request, (Status::Failed, 0), serving)),
        }
    }

    /// Say how a request went, and how many bytes of guest memory it has written.
    fn answer(
        &mut self,
        request: &Request,
        (status, filled): (Status, u32),
        serving: &mut Serving<'_>,
    ) -> Result<(), Broken> {
        self.under_way -= 1;
        serving.memory().write(request.status, &[status as u8])?;
        serving.finish(request.head, filled.saturating_add(1))
    }

    /// How many of the first requests are one job; at least one.
    fn neighbours(&self, requests: &[Request]) -> usize {
        let first = &requests[0];
        if first.kind == kind::FLUSH {
            return requests.iter().take_while(|request| request.kind == kind::FLUSH).count();
        }
        if !matches!(first.kind, kind::READ | kind::WRITE) {
            return 1;
        }
        let (mut end, mut segments, mut bytes) = (first.sector, 0, 0);
        let continues = |request: &&Request| {
            let is_next = request.kind == first.kind && request.sector == end;
            let moved = bytes_moved(request);
            segments += request.source.len() + request.target.len();
            bytes += moved;
            end = end.wrapping_add(moved / SECTOR_BYTES);
            let is_small = segments <= MAX_BLOCK_SEGMENTS && bytes <= MAX_BLOCK_TRANSFER_BYTES;
            is_next && is_small && self.place(request).is_ok()
        };
        requests.iter().take_while(continues).count().max(1)
    }

    /// What is to be done for requests that belong together, or the answer to one that asks for
    /// nothing that takes time, or for what cannot be.
    fn job(&self, requests: &[Request], memory: &dyn Memory) -> Result<Job, (Status, u32)> {
        let failed = |status| (status, 0);
        let first = &requests[0];
        match first.kind {
            kind::READ => {
                let at = self.place(first).map_err(failed)?;
                let target = requests.iter().flat_map(|request| &request.target);
                Ok(Job::Read { at, target: target.copied().collect() })
            }
            kind::WRITE => {
                let at = self.place(first).map_err(failed)?;
                self.must_be_writable().map_err(failed)?;
                let source = requests.iter().flat_map(|request| &request.source);
                Ok(Job::Write { at, source: source.copied().collect() })
            }
            kind::FLUSH => Ok(Job::Flush),
            kind::GET_ID => {
                let mut name = [0; IDENTITY_BYTES];
                name.iter_mut().zip(self.store.serial().bytes()).for_each(|(to, from)| *to = from);
                let filled = scatter(memory, &first.target, &name);
                Err(filled.map_or((Status::Failed, 0), |filled| (Status::Fine, filled)))
            }
            kind::DISCARD | kind::WRITE_ZEROES => self.zero(first, memory).map_err(failed),
            _ => Err((Status::Unsupported, 0)),
        }
    }

    /// Where on the disk a transfer is, in bytes.
    fn place(&self, request: &Request) -> Result<u64, Status> {
        self.range(request.sector, bytes_moved(request))
    }

    /// Where so many bytes from a sector on are, if they are whole sectors of the disk.
    fn range(&self, sector: u64, bytes: u64) -> Result<u64, Status> {
        let start = sector.checked_mul(SECTOR_BYTES).ok_or(Status::Failed)?;
        let end = start.checked_add(bytes).ok_or(Status::Failed)?;
        let fits = bytes.is_multiple_of(SECTOR_BYTES) && end <= self.store.bytes();
        if fits { Ok(start) } else { Err(Status::Failed) }
    }

    /// Discard, or write zeroes to, one range (5.2.6.2). What is discarded is zero as well.
    fn zero(&self, request: &Request, memory: &dyn Memory) -> Result<Job, Status> {
        if !self.store.can_discard() {
            return Err(Status::Unsupported);
        }
        self.must_be_writable()?;
        let mut range = [0; RANGE_BYTES];
        let mut source = request.source.clone();
        let taken = request::take_front(memory, &mut source, &mut range);
        taken.map_err(|_| Status::Failed)?;
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, f0, f1, f2, f3] = range;
        let sector = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let bytes = u64::from(u32::from_le_bytes([n0, n1, n2, n3])) * SECTOR_BYTES;
        let flags = u32::from_le_bytes([f0, f1, f2, f3]);
        let discards = request.kind == kind::DISCARD;
        if !source.is_empty() || flags & !UNMAP != 0 || discards && flags != 0 {
            return Err(Status::Unsupported);
        }
        let at = self.range(sector, bytes)?;
        if bytes > MAX_BLOCK_DISCARD_BYTES {
            return Err(Status::Failed);
        }
        Ok(Job::Zero { at, bytes, unmap: discards || flags & UNMAP != 0 })
    }

    fn must_be_writable(&self) -> Result<(), Status> {
        if self.store.is_read_only() { Err(Status::Failed) } else { Ok(()) }
    }
}

impl Device for Block {
    fn kind(&self) -> Kind {
        Kind { number: NUMBER, class: CLASS }
    }

    fn features(&self) -> u64 {
        let always = Features::SEGMENTS | Features::BLOCK_SIZE | Features::FLUSH;
        let mut features = always | Features::TOPOLOGY;
        features.set(Features::READ_ONLY, self.store.is_read_only());
        let discards = self.store.can_discard() && !self.store.is_read_only();
        features.set(Features::DISCARD | Features::WRITE_ZEROES, discards);
        features.bits()
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn configuration(&self) -> Vec<u8> {
        let discard = (MAX_BLOCK_DISCARD_BYTES / SECTOR_BYTES) as u32;
        configuration(self.store.bytes() / SECTOR_BYTES, discard)
    }

    fn activate(&mut self, features: u64) {
        self.writes_through = features & Features::FLUSH.bits() == 0;
    }

    fn serve(&mut self, _queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        self.batch.clear();
        self.reap(serving)?;
        // What is left in the queue when there is no room is looked at when something ends.
        while self.under_way < MAX_BLOCK_REQUESTS && serving.pop(&mut self.chain)? {
            let most = MAX_BLOCK_BATCH.min(MAX_BLOCK_REQUESTS - self.under_way);
            loop {
                self.batch.push(Request::parse(&self.chain, serving.memory())?);
                if self.batch.len() >= most || !serving.take(&mut self.chain)? {
                    break;
                }
            }
            self.begin_batch(serving)?;
            self.reap(serving)?;
        }
        Ok(())
    }

    fn is_idle(&mut self) -> bool {
        while let Some((number, _)) = self.store.finished() {
            // Nobody wants to know any more.
            self.take(number);
        }
        self.free.len() == self.tasks.len()
    }

    fn is_at_work(&self) -> bool {
        self.free.len() != self.tasks.len()
    }

    fn reset(&mut self) {
        self.writes_through = true;
        self.batch.clear();
        self.under_way = 0;
    }
}

/// Bytes that a read or write moves.
fn bytes_moved(request: &Request) -> u64 {
    Chain::bytes(if request.kind == kind::READ { &request.target } else { &request.source })
}

/// Bytes of guest memory that a read or write has filled if it went well.
fn bytes_filled(request: &Request) -> u32 {
    if request.kind == kind::READ { bytes_moved(request) as u32 } else { 0 }
}

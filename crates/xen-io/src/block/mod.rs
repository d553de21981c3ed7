//! The back-end of a disk: a ring of requests, and what becomes of them (public/io/blkif.h).
//!
//! It has no thread and reads no file. The program that embeds it calls [`Block::serve`] when the front-end has
//! notified or a job has ended, carries out the jobs ([`Images`]), and notifies the front-end when it is told to.
//!
//! 1. *A request reaches sectors only through the device's extents* ([`Vbd`]), and memory only through grants that are
//!    held until its last job has ended.
//! 2. *Turns are short*: at most 32 requests or 512 KiB, then somebody else's disk may have its turn. At most 2 MiB
//!    are under way; the request that does not fit waits, and all behind it.
//! 3. *Nothing passes a flush or barrier.* It begins when all before it have ended, and what is behind it begins when
//!    it has ended. A barrier is: flush, write, flush. Between them, requests of a turn begin in the order of their
//!    sectors, and end in any.
//! 4. *A wrong request is answered, a wrong ring is the end.* After [`Broken`] no request is taken, and none is
//!    answered; jobs that are under way end ([`Block::is_idle`]).

mod job;
mod request;
mod settings;
mod vbd;

use std::sync::Arc;

use xen_abi::block::{Response, status};

pub use self::job::{Failed, Images, Job, Ticket};
pub use self::settings::{DiskSettings, description, offers};
pub use self::vbd::{Denied, Extent, Place, Right, Vbd, VbdError};

use self::job::Task;
use self::request::{ENTRY_BYTES, Request};
use crate::error::Broken;
use crate::grant::Grants;
use crate::limits::{MAX_BATCH_BYTES, MAX_BATCH_REQUESTS, MAX_BYTES_UNDER_WAY};
use crate::ring::Ring;

/// What a turn comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// The front-end has to be notified.
    pub notifies: bool,
    /// There is more to do that nobody will ring for: serve again, after others.
    pub is_unfinished: bool,
}

/// Why a turn takes no more requests.
enum End {
    /// The turn is long enough.
    Share,
    /// What is next waits for jobs to end.
    Waits,
    /// There are none.
    Empty,
}

/// See above.
#[derive(Debug)]
pub struct Block {
    ring: Ring,
    grants: Arc<Grants>,
    vbd: Vbd,
    discards: bool,
    /// What is under way, by ticket.
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
    /// The request that waits for others to end.
    held: Option<Request>,
    bytes_under_way: u64,
    broken: Option<Broken>,
}

impl Block {
    /// The disk of a front-end that has granted the pages of this ring. `discards` if that was offered.
    ///
    /// # Errors
    ///
    /// [`Broken`] if they are no ring.
    pub fn new(
        grants: &Arc<Grants>,
        ring_references: &[u32],
        vbd: Vbd,
        discards: bool,
    ) -> Result<Self, Broken> {
        let ring = Ring::open(grants, ring_references, ENTRY_BYTES)?;
        let count = ring.entries() as usize;
        Ok(Self {
            ring,
            grants: Arc::clone(grants),
            vbd,
            discards,
            tasks: (0..count).map(|_| None).collect(),
            free: (0..count).collect(),
            held: None,
            bytes_under_way: 0,
            broken: None,
        })
    }

    /// No job is under way: everything may be dropped.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.tasks.len()
    }

    /// Bytes that jobs move at the moment.
    pub fn bytes_under_way(&self) -> u64 {
        self.bytes_under_way
    }

    /// Answer what has ended, and begin what the front-end asks for, as far as a turn goes.
    ///
    /// # Errors
    ///
    /// [`Broken`], from then on always. Call on until [`Self::is_idle`], for jobs to end.
    pub fn serve(&mut self, images: &mut dyn Images) -> Result<Turn, Broken> {
        let turn = self.turn(images);
        if let Err(broken) = turn {
            self.broken.get_or_insert(broken);
        }
        turn
    }

    /// Answer what has ended and begin nothing, for a front-end that closes.
    ///
    /// # Errors
    ///
    /// As [`Self::serve`].
    pub fn drain(&mut self, images: &mut dyn Images) -> Result<Turn, Broken> {
        let result = self.reap(images).and_then(|()| self.ring.publish());
        let turn = result.map(|notifies| Turn { notifies, is_unfinished: false });
        if let Err(broken) = turn {
            self.broken.get_or_insert(broken);
        }
        turn
    }

    fn turn(&mut self, images: &mut dyn Images) -> Result<Turn, Broken> {
        self.reap(images)?;
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let end = self.begin_batch(images)?;
        // Jobs may have ended at once, and given room to what waits.
        let is_unfinished = match end {
            End::Share => true,
            End::Waits => self.is_idle(),
            End::Empty => !self.ring.asks_for_event()?,
        };
        Ok(Turn { notifies: self.ring.publish()?, is_unfinished })
    }

    /// Take requests for a turn and begin them.
    fn begin_batch(&mut self, images: &mut dyn Images) -> Result<End, Broken> {
        let (mut batch, mut count, mut bytes) = (Vec::new(), 0, 0);
        let mut batched = 0;
        let end = loop {
            if count >= MAX_BATCH_REQUESTS || bytes >= MAX_BATCH_BYTES {
                break End::Share;
            }
            let Some(request) = self.next()? else { break End::Empty };
            let mine = request.bytes();
            let is_ordered = request.is_ordered();
            if is_ordered || self.bytes_under_way + batched + mine > MAX_BYTES_UNDER_WAY {
                self.begin_all(&mut batch, images)?;
                batched = 0;
            }
            if !self.may_begin(&request, batched) {
                self.held = Some(request);
                break End::Waits;
            }
            (count, bytes) = (count + 1, bytes + mine);
            batched += mine;
            batch.push(request);
            if is_ordered {
                self.begin_all(&mut batch, images)?;
                batched = 0;
            }
        };
        self.begin_all(&mut batch, images)?;
        Ok(end)
    }

    /// The next request: the one that waited, or the ring's.
    fn next(&mut self) -> Result<Option<Request>, Broken> {
        if let Some(request) = self.held.take() {
            return Ok(Some(request));
        }
        let mut bytes = [0; ENTRY_BYTES];
        if !self.ring.pop(&mut bytes)? {
            return Ok(None);
        }
        Ok(Some(Request::parse(&bytes, &self.vbd, &self.grants, self.discards)))
    }

    /// Whether it need not wait for what is under way; so many bytes begin before it.
    fn may_begin(&self, request: &Request, batched: u64) -> bool {
        // One that is ordered is alone.
        let is_blocked = self.tasks.iter().flatten().any(|task| task.is_ordered);
        let has_room = self.bytes_under_way + batched + request.bytes() <= MAX_BYTES_UNDER_WAY;
        !is_blocked && has_room && (!request.is_ordered() || self.is_idle())
    }

    fn begin_all(
        &mut self,
        batch: &mut Vec<Request>,
        images: &mut dyn Images,
    ) -> Result<(), Broken> {
        batch.sort_by_key(Request::position);
        batch.drain(..).try_for_each(|request| self.begin(request, images))
    }

    fn begin(&mut self, request: Request, images: &mut dyn Images) -> Result<(), Broken> {
        let (id, operation) = (request.id, request.operation);
        match Task::new(request, &self.vbd, &self.grants) {
            Err(_) => self.respond(id, operation, status::ERROR),
            Ok(Err(status)) => self.respond(id, operation, status),
            Ok(Ok(task)) => {
                // A request is in the ring while it is under way: there are not more than entries.
                let number = self.free.pop().ok_or(Broken::Responses)?;
                self.bytes_under_way += task.bytes;
                self.tasks[number] = Some(task);
                self.advance(number, images)
            }
        }
    }

    /// Start jobs of a task until one takes time, or all are done.
    fn advance(&mut self, number: usize, images: &mut dyn Images) -> Result<(), Broken> {
        loop {
            let task = self.tasks.get_mut(number).and_then(Option::as_mut);
            let Some(task) = task else { return Ok(()) };
            let Some(job) = task.jobs.pop_front() else {
                return self.end(number, Ok(()), images);
            };
            match images.start(Ticket(number), job) {
                None => return Ok(()),
                Some(Ok(())) => (),
                Some(failed) => return self.end(number, failed, images),
            }
        }
    }

    /// Go on with tasks whose jobs have ended.
    fn reap(&mut self, images: &mut dyn Images) -> Result<(), Broken> {
        let mut result = Ok(());
        while let Some((Ticket(number), outcome)) = images.finished() {
            let went_on = match outcome {
                Ok(()) if self.broken.is_none() => self.advance(number, images),
                outcome => self.end(number, outcome, images),
            };
            result = result.and(went_on);
        }
        result
    }

    /// A task has ended: the frames are free, and the front-end is told.
    fn end(
        &mut self,
        number: usize,
        outcome: Result<(), Failed>,
        images: &mut dyn Images,
    ) -> Result<(), Broken> {
        let task = self.tasks.get_mut(number).and_then(Option::take);
        let Some(task) = task else { return Ok(()) };
        self.free.push(number);
        self.bytes_under_way -= task.bytes;
        if !task.filled.is_empty() {
            images.filled(&task.filled);
        }
        let (id, operation) = (task.id, task.operation);
        // The front-end may end the grants when it has seen the answer.
        drop(task);
        let status = if outcome.is_ok() { status::OKAY } else { status::ERROR };
        self.respond(id, operation, status)
    }

    fn respond(&mut self, id: u64, operation: u8, status: i16) -> Result<(), Broken> {
        match self.broken {
            Some(_) => Ok(()),
            None => self.ring.push(&Response { id, operation, status }.to_bytes()),
        }
    }
}

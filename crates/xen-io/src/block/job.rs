//! What a disk asks of the program that keeps the images, and a request as a list of such jobs.

use std::collections::VecDeque;
use std::sync::Arc;

use xen_abi::block::{SECTOR_BYTES, Segment};

use super::request::{Action, Request};
use super::vbd::{Place, Right, Vbd};
use crate::grant::{Access, Grant, GrantError, Grants};
use crate::memory::Range;

/// What is to be done. Places are inside of the device's extents; ranges are in frames that stay the domain's until
/// the job has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// Fill the domain's memory with what is there, all of it.
    Read {
        /// Where in an image.
        place: Place,
        /// As many bytes; if it fails, some of it may have been filled.
        target: Vec<Range>,
    },
    /// Write the domain's memory there, all of it.
    Write {
        /// Where in an image.
        place: Place,
        /// As many bytes; if it fails, some of it may have been written.
        source: Vec<Range>,
    },
    /// Have everything of the image whose writing has ended survive the host.
    Flush {
        /// The image's number.
        image: usize,
    },
    /// The place reads as zeroes from now on, and its room may be given back.
    Discard {
        /// Where in an image.
        place: Place,
    },
}

/// It did not work; the images' keeper has said why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// A job under way: no other of the disk has this number meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(pub usize);

/// What keeps the images. No method blocks for long.
pub trait Images {
    /// Begin a job: how it went if it is done; otherwise [`Self::finished`] gives its ticket when it is, and the disk
    /// is to be served then.
    fn start(&mut self, ticket: Ticket, job: Job) -> Option<Result<(), Failed>>;

    /// A job of this disk that has ended since it was started, and how it went; each is given once.
    fn finished(&mut self) -> Option<(Ticket, Result<(), Failed>)>;

    /// These bytes of the domain's memory were written, perhaps. Translations of them are to be invalid when this
    /// returns: the domain has not been told of the bytes yet.
    fn filled(&mut self, ranges: &[Range]);
}

/// A request under way: jobs, one after the other.
#[derive(Debug)]
pub(super) struct Task {
    pub id: u64,
    pub operation: u8,
    pub jobs: VecDeque<Job>,
    pub is_ordered: bool,
    pub bytes: u64,
    /// What the guest's memory is filled with, when it ends.
    pub filled: Vec<Range>,
    /// They hold the frames until all jobs have ended.
    grants: Vec<Grant>,
}

impl Task {
    /// Take the grants of a request and say what it comes to; a request that is only answered is the answer.
    pub fn new(
        request: Request,
        vbd: &Vbd,
        grants: &Arc<Grants>,
    ) -> Result<Result<Self, i16>, GrantError> {
        let (is_ordered, bytes) = (request.is_ordered(), request.bytes());
        let Request { id, operation, action } = request;
        let flushes = || vbd.images().into_iter().map(|image| Job::Flush { image });
        let mut task = Self {
            id,
            operation,
            jobs: VecDeque::new(),
            is_ordered,
            bytes,
            filled: Vec::new(),
            grants: Vec::new(),
        };
        match action {
            Action::Answer(status) => return Ok(Err(status)),
            Action::Flush => task.jobs.extend(flushes()),
            Action::Discard(places) => {
                task.jobs.extend(places.into_iter().map(|place| Job::Discard { place }));
            }
            Action::Move { right, places, segments, is_ordered } => {
                let ranges = task.hold(right, &segments, grants)?;
                let moves = jobs(right, &places, &ranges);
                if right == Right::Read {
                    task.filled = ranges;
                }
                // What was written before survives if this does, and this survives when it is answered.
                let flushes = || flushes().take(if is_ordered { usize::MAX } else { 0 });
                task.jobs.extend(flushes().chain(moves).chain(flushes()));
            }
        }
        Ok(Ok(task))
    }

    /// Take the segments' grants; where in memory they are.
    fn hold(
        &mut self,
        right: Right,
        segments: &[Segment],
        grants: &Arc<Grants>,
    ) -> Result<Vec<Range>, GrantError> {
        let access = if right == Right::Read { Access::Write } else { Access::Read };
        let mut ranges = Vec::with_capacity(segments.len());
        for segment in segments {
            let grant = grants.take(segment.reference, access)?;
            let first = u64::from(segment.first_sector) * SECTOR_BYTES;
            let end = (u64::from(segment.last_sector) + 1) * SECTOR_BYTES;
            // The sectors were checked to be those of a page.
            ranges.extend(grant.range(first as usize, (end - first) as usize));
            self.grants.push(grant);
        }
        Ok(ranges)
    }
}

/// A job for each place, with as many bytes of the ranges.
fn jobs(right: Right, places: &[Place], ranges: &[Range]) -> Vec<Job> {
    let mut ranges: VecDeque<Range> = ranges.iter().copied().collect();
    let each = |place: &Place| {
        let (mut part, mut left) = (Vec::new(), place.bytes);
        while left > 0 {
            let Some(range) = ranges.pop_front() else { break };
            let now = left.min(range.bytes.into()) as u32;
            part.push(Range { at: range.at, bytes: now });
            left -= u64::from(now);
            if now < range.bytes {
                let at = range.at.plus(now.into());
                ranges.push_front(Range { at, bytes: range.bytes - now });
            }
        }
        match right {
            Right::Read => Job::Read { place: *place, target: part },
            Right::Write => Job::Write { place: *place, source: part },
        }
    };
    places.iter().map(each).collect()
}

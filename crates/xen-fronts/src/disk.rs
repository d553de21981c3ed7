//! Disks: a front-end as Linux's blkfront, images in memory, and jobs that end when they are told to.

use std::collections::VecDeque;
use std::sync::Arc;

use xen_abi::block::{Request, Response, Segment, limit};
use xen_io::block::{Block, Extent, Failed, Images, Job, Ticket, Vbd};
use xen_io::grant::Grants;
use xen_io::{Memory, Range};

use crate::machine::{DATA, Front, Machine, RING};

/// Bytes of a sector.
pub const SECTOR: usize = 512;

/// Images, and what was asked of them.
pub struct Keeper {
    /// Whose disk it is.
    pub machine: Arc<Machine>,
    /// What the domain has granted.
    pub grants: Arc<Grants>,
    /// The images' bytes.
    pub images: Vec<Vec<u8>>,
    /// Jobs take time.
    pub is_slow: bool,
    /// Jobs fail.
    pub fails: bool,
    /// Jobs that have not ended.
    pub under_way: VecDeque<(Ticket, Job)>,
    /// What the back-end has not been told.
    pub ended: VecDeque<(Ticket, Result<(), Failed>)>,
    /// All jobs.
    pub log: Vec<Job>,
    /// What was named as written.
    pub filled: Vec<Range>,
}

impl Keeper {
    fn perform(&mut self, job: &Job) -> Result<(), Failed> {
        if self.fails {
            return Err(Failed);
        }
        match job {
            Job::Read { place, target } => {
                let mut at = place.at as usize;
                for range in target {
                    let bytes = &self.images[place.image][at..at + range.bytes as usize];
                    self.machine.write(range.at, bytes).expect("it is held");
                    at += bytes.len();
                }
                assert_eq!(at as u64, place.at + place.bytes);
            }
            Job::Write { place, source } => {
                let mut at = place.at as usize;
                for range in source {
                    let bytes = &mut self.images[place.image][at..at + range.bytes as usize];
                    self.machine.read(range.at, bytes).expect("it is held");
                    at += bytes.len();
                }
                assert_eq!(at as u64, place.at + place.bytes);
            }
            Job::Discard { place } => {
                self.images[place.image][place.at as usize..][..place.bytes as usize].fill(0);
            }
            Job::Flush { image } => assert!(*image < self.images.len()),
        }
        Ok(())
    }

    /// End the job of this position.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn finish(&mut self, position: usize) {
        let (ticket, job) = self.under_way.remove(position).expect("it is under way");
        let result = self.perform(&job);
        self.ended.push_back((ticket, result));
    }
}

impl Images for Keeper {
    fn start(&mut self, ticket: Ticket, job: Job) -> Option<Result<(), Failed>> {
        assert!(self.under_way.iter().all(|(other, _)| *other != ticket), "it has a job");
        self.log.push(job.clone());
        if self.is_slow {
            self.under_way.push_back((ticket, job));
            return None;
        }
        Some(self.perform(&job))
    }

    fn finished(&mut self) -> Option<(Ticket, Result<(), Failed>)> {
        self.ended.pop_front()
    }

    fn filled(&mut self, ranges: &[Range]) {
        self.filled.extend(ranges);
    }
}

/// A front-end, its disk and the images: 64 sectors that can be written, 32 that cannot, 3,000 that can.
pub struct Bench {
    /// The front-end.
    pub front: Front,
    /// The back-end.
    pub block: Block,
    /// The images.
    pub keeper: Keeper,
}

impl Bench {
    /// With a ring of so many pages.
    ///
    /// # Panics
    ///
    /// If there cannot be such a ring.
    pub fn new(pages: usize) -> Self {
        let front = Front::new(pages, limit::ENTRY_BYTES as usize);
        let extent =
            |image, start, sectors, is_writable| Extent { image, start, sectors, is_writable };
        let list = [extent(0, 8, 64, true), extent(1, 0, 32, false), extent(0, 1000, 9000, true)];
        let vbd = Vbd::new(&list).expect("they are extents");
        let references: Vec<_> = (RING..RING + pages as u32).collect();
        let block = Block::new(&front.grants, &references, vbd, true).expect("it is a ring");
        let images = vec![vec![0xaa; 10000 * SECTOR], vec![0xbb; 32 * SECTOR]];
        let (machine, grants) = (Arc::clone(&front.machine), Arc::clone(&front.grants));
        let keeper = Keeper {
            machine,
            grants,
            images,
            is_slow: false,
            fails: false,
            under_way: VecDeque::new(),
            ended: VecDeque::new(),
            log: Vec::new(),
            filled: Vec::new(),
        };
        Self { front, block, keeper }
    }

    /// Put a request for whole pages from [`DATA`] + `page` on.
    pub fn put(&mut self, id: u64, operation: u8, sector: u64, page: u32, pages: u8) {
        let mut request = Request { operation, id, sector, count: pages, ..Request::zeroed() };
        for (number, segment) in request.segments.iter_mut().take(pages.into()).enumerate() {
            let reference = DATA + page + number as u32;
            *segment = Segment { reference, first_sector: 0, last_sector: 7 };
        }
        self.front.put(&request.to_bytes());
    }

    /// Serve until there is nothing to do; what was answered, in order.
    ///
    /// # Panics
    ///
    /// If the ring is broken.
    pub fn serve(&mut self) -> Vec<(u64, i16)> {
        self.front.push();
        while self.block.serve(&mut self.keeper).expect("it is a ring").is_unfinished {}
        let responses = self.front.take::<Response>();
        responses.iter().map(|it| (it.id, it.status)).collect()
    }

    /// Serve a request 7 that is answered with this status, and leaves nothing behind.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn check(mut self, expected: i16) {
        assert_eq!(self.serve(), [(7, expected)]);
        assert!(self.block.is_idle());
        // What is left is the ring.
        assert_eq!(self.keeper.grants.in_use(), 1);
    }
}

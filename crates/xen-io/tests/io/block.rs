//! Disks: a front-end as Linux's blkfront, images in memory, and jobs that end when the test says so.

use std::collections::VecDeque;
use std::sync::Arc;

use xen_abi::PAGE_BYTES;
use xen_abi::block::{Discard, Indirect, Request, Response, Segment, limit, operation, status};
use xen_io::block::{Block, Denied, Extent, Failed, Images, Job, Place, Right, Ticket, Vbd};
use xen_io::grant::Grants;
use xen_io::limits::MAX_BYTES_UNDER_WAY;
use xen_io::{Memory, Range};

use crate::machine::{DATA, Front, Machine, RING, address};

const SECTOR: usize = 512;

/// Images, and what was asked of them.
pub struct Keeper {
    pub machine: Arc<Machine>,
    pub grants: Arc<Grants>,
    pub images: Vec<Vec<u8>>,
    /// Jobs take time.
    pub is_slow: bool,
    pub fails: bool,
    pub under_way: VecDeque<(Ticket, Job)>,
    pub ended: VecDeque<(Ticket, Result<(), Failed>)>,
    pub log: Vec<Job>,
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
    pub front: Front,
    pub block: Block,
    pub keeper: Keeper,
}

impl Bench {
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
    fn put(&mut self, id: u64, operation: u8, sector: u64, page: u32, pages: u8) {
        let mut request = Request { operation, id, sector, count: pages, ..Request::zeroed() };
        for (number, segment) in request.segments.iter_mut().take(pages.into()).enumerate() {
            let reference = DATA + page + number as u32;
            *segment = Segment { reference, first_sector: 0, last_sector: 7 };
        }
        self.front.put(&request.to_bytes());
    }

    /// Serve until there is nothing to do; what was answered, in order.
    fn serve(&mut self) -> Vec<(u64, i16)> {
        self.front.push();
        while self.block.serve(&mut self.keeper).expect("it is a ring").is_unfinished {}
        let responses = self.front.take::<Response>();
        responses.iter().map(|it| (it.id, it.status)).collect()
    }

    fn check(mut self, expected: i16) {
        assert_eq!(self.serve(), [(7, expected)]);
        assert!(self.block.is_idle());
        // What is left is the ring.
        assert_eq!(self.keeper.grants.in_use(), 1);
    }
}

fn one(operation: u8, sector: u64, pages: u8, expected: i16) {
    let mut bench = Bench::new(1);
    bench.put(7, operation, sector, 0, pages);
    bench.check(expected);
}

#[test]
fn requests_are_answered_as_by_linux() {
    one(operation::READ, 0, 1, status::OKAY);
    one(operation::WRITE, 0, 1, status::OKAY);
    one(operation::READ, 0, 0, status::ERROR);
    one(operation::READ, 0, 12, status::ERROR);
    one(operation::READ, 9088, 1, status::OKAY);
    one(operation::READ, 9089, 1, status::ERROR);
    one(operation::READ, u64::MAX, 1, status::ERROR);
    one(operation::WRITE, 64, 1, status::ERROR);
    one(operation::WRITE, 60, 1, status::ERROR);
    one(operation::READ, 60, 1, status::OKAY);
    one(operation::FLUSH_DISKCACHE, 0, 0, status::OKAY);
    one(operation::WRITE_BARRIER, 0, 1, status::OKAY);
    one(operation::WRITE_BARRIER, 64, 1, status::ERROR);
    one(4, 0, 1, status::EOPNOTSUPP);
    one(0xff, 0, 1, status::EOPNOTSUPP);
}

#[test]
fn segments_and_grants_are_checked() {
    let with = |segment: Segment, flags: u16, operation| {
        let mut bench = Bench::new(1);
        bench.front.machine.permit(DATA, DATA, flags);
        let mut request = Request { operation, id: 7, count: 1, ..Request::zeroed() };
        request.segments[0] = segment;
        bench.front.put(&request.to_bytes());
        bench
    };
    let segment =
        |first_sector, last_sector| Segment { reference: DATA, first_sector, last_sector };
    with(segment(3, 2), 0, operation::READ).check(status::ERROR);
    with(segment(0, 8), 0, operation::READ).check(status::ERROR);
    with(segment(7, 7), 0, operation::READ).check(status::OKAY);
    let read_only = xen_abi::grant::entry::READONLY;
    with(segment(0, 7), read_only, operation::READ).check(status::ERROR);
    with(segment(0, 7), read_only, operation::WRITE).check(status::OKAY);
    let nobodys = Segment { reference: 600, first_sector: 0, last_sector: 0 };
    with(nobodys, 0, operation::WRITE).check(status::ERROR);
}

#[test]
fn bytes_go_through_the_extents_and_are_named_before_the_answer() {
    let mut bench = Bench::new(1);
    bench.front.machine.fill(DATA, 1);
    bench.front.machine.fill(DATA + 1, 2);
    bench.put(1, operation::WRITE, 56, 0, 1);
    bench.put(2, operation::WRITE, 96, 1, 1);
    assert_eq!(bench.serve(), [(1, 0), (2, 0)]);
    assert_eq!(bench.keeper.images[0][64 * SECTOR..72 * SECTOR], [1; PAGE_BYTES]);
    assert_eq!(bench.keeper.images[0][1000 * SECTOR..1008 * SECTOR], [2; PAGE_BYTES]);
    assert_eq!(
        (bench.keeper.images[0][63 * SECTOR], bench.keeper.images[0][1008 * SECTOR]),
        (0xaa, 0xaa)
    );
    assert!(bench.keeper.filled.is_empty());
    // One page from two extents.
    bench.put(3, operation::READ, 60, 2, 1);
    assert_eq!(bench.serve(), [(3, 0)]);
    let page = bench.front.machine.page(DATA + 2);
    assert_eq!((page[..2048].to_vec(), page[2048..].to_vec()), (vec![1; 2048], vec![0xbb; 2048]));
    assert_eq!(bench.keeper.filled, [Range { at: address(DATA + 2), bytes: 4096 }]);
}

#[test]
fn failures_are_errors_and_name_what_was_filled() {
    let mut bench = Bench::new(1);
    bench.keeper.fails = true;
    bench.put(7, operation::READ, 0, 0, 1);
    assert_eq!(bench.serve(), [(7, status::ERROR)]);
    assert_eq!(bench.keeper.filled.len(), 1);
    assert_eq!(bench.keeper.grants.in_use(), 1);
}

#[test]
fn indirect_requests_move_up_to_256_pages() {
    let indirect = |count: u16, indirect_operation, expected| {
        let mut bench = Bench::new(1);
        let place = DATA + 300;
        for number in 0..256_u32 {
            let reference = DATA + number;
            let segment = Segment { reference, first_sector: 0, last_sector: 7 };
            let at = address(place).plus(u64::from(number) * 8);
            bench.front.machine.write(at, &segment.to_bytes()).expect("it is there");
        }
        let mut request = Indirect { operation: operation::INDIRECT, id: 7, ..Indirect::zeroed() };
        (request.indirect_operation, request.count, request.sector) =
            (indirect_operation, count, 96);
        request.references[0] = place;
        bench.front.put(&request.to_bytes());
        bench.front.push();
        bench.block.serve(&mut bench.keeper).expect("it is a ring");
        let answer = bench.front.take::<Response>()[0];
        // Linux's blkfront compares the operation with the one inside.
        assert_eq!((answer.id, answer.operation, answer.status), (7, indirect_operation, expected));
        let bytes: u32 = bench.keeper.filled.iter().map(|range| range.bytes).sum();
        let reads = indirect_operation == operation::READ && expected == status::OKAY;
        assert_eq!(bytes, if reads { u32::from(count) * 4096 } else { 0 });
        assert_eq!(bench.keeper.grants.in_use(), 1);
    };
    indirect(256, operation::READ, status::OKAY);
    indirect(1, operation::WRITE, status::OKAY);
    indirect(257, operation::READ, status::ERROR);
    indirect(0, operation::READ, status::ERROR);
    indirect(4, operation::WRITE_BARRIER, status::ERROR);
    indirect(4, operation::INDIRECT, status::ERROR);
}

#[test]
fn discards_are_within_the_extents() {
    let discard = |sector, sectors, flag, expected| {
        let mut bench = Bench::new(1);
        let operation = operation::DISCARD;
        let request = Discard { operation, id: 7, sector, sectors, flag, ..Discard::zeroed() };
        bench.front.put(&request.to_bytes());
        assert_eq!(bench.serve(), [(7, expected)]);
        let zeroes = bench.keeper.images[0].iter().filter(|byte| **byte == 0).count();
        let expected = if expected == status::OKAY { sectors as usize * SECTOR } else { 0 };
        assert_eq!(zeroes, expected);
    };
    discard(0, 64, 0, status::OKAY);
    discard(0, 65, 0, status::ERROR);
    discard(100, u64::MAX, 0, status::ERROR);
    discard(0, 1, 1, status::EOPNOTSUPP);
}

#[test]
fn nothing_passes_a_barrier_or_flush() {
    for ordered in [operation::WRITE_BARRIER, operation::FLUSH_DISKCACHE] {
        let mut bench = Bench::new(1);
        bench.keeper.is_slow = true;
        bench.put(1, operation::WRITE, 8, 0, 1);
        bench.put(2, operation::WRITE, 0, 1, 1);
        bench.put(3, ordered, 16, 2, 1);
        bench.put(4, operation::READ, 16, 3, 1);
        assert_eq!(bench.serve(), []);
        assert_eq!(bench.keeper.under_way.len(), 2, "what is before it, in the order of sectors");
        assert!(matches!(bench.keeper.log[0], Job::Write { place: Place { at: 4096, .. }, .. }));
        bench.keeper.finish(1);
        assert_eq!(bench.serve(), [(1, 0)]);
        assert_eq!(bench.keeper.under_way.len(), 1);
        bench.keeper.finish(0);
        assert_eq!(bench.serve(), [(2, 0)]);
        // Flush both images, write, flush both.
        for step in 0..5 {
            assert_eq!(bench.keeper.under_way.len(), 1, "it is alone");
            let is_flush = matches!(bench.keeper.under_way[0].1, Job::Flush { .. });
            assert_eq!(is_flush, step != 2);
            bench.keeper.finish(0);
            assert_eq!(bench.serve(), if step < 4 { vec![] } else { vec![(3, 0)] });
        }
        bench.keeper.finish(0);
        assert_eq!(bench.serve(), [(4, 0)]);
        assert!(bench.block.is_idle() && bench.keeper.under_way.is_empty());
    }
}

#[test]
fn a_turn_is_short_and_bytes_under_way_are_few() {
    let mut bench = Bench::new(4);
    bench.keeper.is_slow = true;
    for id in 0..60 {
        bench.put(id, operation::READ, 96, 0, 11);
    }
    bench.front.push();
    let turn = bench.block.serve(&mut bench.keeper).expect("it is a ring");
    // 11 pages are 44 KiB.
    assert_eq!((turn.is_unfinished, bench.keeper.under_way.len()), (true, 12));
    assert_eq!(bench.serve(), []);
    assert_eq!(bench.keeper.under_way.len() as u64, MAX_BYTES_UNDER_WAY / (44 << 10));
    let mut answered = 0;
    while !bench.keeper.under_way.is_empty() {
        bench.keeper.finish(0);
        answered += bench.serve().len();
        assert!(bench.block.bytes_under_way() <= MAX_BYTES_UNDER_WAY);
    }
    assert_eq!((answered, bench.block.bytes_under_way()), (60, 0));
    for id in 0..40 {
        bench.put(id, operation::READ, 96, 0, 1);
    }
    bench.front.push();
    assert!(bench.block.serve(&mut bench.keeper).expect("it is a ring").is_unfinished);
    assert_eq!(bench.keeper.under_way.len(), 32);
}

#[test]
fn events_are_sent_for_what_somebody_waits_for() {
    let mut bench = Bench::new(1);
    bench.put(1, operation::READ, 0, 0, 1);
    assert!(bench.front.push(), "the back-end wants the first");
    let turn = bench.block.serve(&mut bench.keeper).expect("it is a ring");
    assert!(turn.notifies && !turn.is_unfinished);
    // The front-end has not looked yet, so that it wants no second event.
    bench.put(2, operation::READ, 0, 0, 1);
    assert!(bench.front.push());
    assert!(!bench.block.serve(&mut bench.keeper).expect("it is a ring").notifies);
    assert_eq!(bench.front.take::<Response>().len(), 2);
    let turn = bench.block.serve(&mut bench.keeper).expect("it is a ring");
    assert!(!turn.notifies, "nothing has happened");
    // The back-end has something under way and is not asleep: no event for what it will see.
    bench.put(3, operation::READ, 0, 0, 1);
    bench.front.push();
    bench.put(4, operation::READ, 0, 0, 1);
    assert!(!bench.front.push());
    assert!(bench.block.serve(&mut bench.keeper).expect("it is a ring").notifies);
}

#[test]
fn rings_of_several_pages_go_round() {
    for pages in [1, 2, 4, 16] {
        let mut bench = Bench::new(pages);
        let entries = xen_abi::ring::entries(pages * PAGE_BYTES, 112) as u64;
        for id in 0..3 * entries {
            bench.put(id, operation::READ, 0, 0, 1);
            assert_eq!(bench.serve(), [(id, 0)], "{pages} pages");
        }
    }
}

#[test]
fn a_disk_that_closes_ends_its_jobs() {
    let mut bench = Bench::new(1);
    bench.keeper.is_slow = true;
    bench.put(1, operation::READ, 0, 0, 1);
    assert_eq!(bench.serve(), []);
    bench.put(2, operation::READ, 0, 0, 1);
    bench.front.push();
    bench.keeper.finish(0);
    assert!(bench.block.drain(&mut bench.keeper).expect("it is a ring").notifies);
    assert_eq!(bench.front.take::<Response>().len(), 1);
    assert!(bench.block.is_idle());
    drop(bench.block);
    assert_eq!((bench.keeper.grants.in_use(), bench.front.machine.references()), (0, 0));
}

#[test]
fn extents_are_what_a_device_is_made_of() {
    let extent = |start, sectors| Extent { image: 0, start, sectors, is_writable: false };
    for wrong in [vec![], vec![extent(0, 0)], vec![extent(u64::MAX, 1)], vec![extent(1 << 55, 1)]] {
        assert!(Vbd::new(&wrong).is_err(), "{wrong:?}");
    }
    assert!(Vbd::new(&[extent(0, 1 << 54), extent(0, 1 << 54)]).is_err());
    let vbd = Vbd::new(&[extent(4, 4), extent(8, 4), extent(100, 1)]).expect("they are extents");
    assert!(vbd.is_read_only());
    let place = |at: u64, bytes: u64| Place { image: 0, at: at * 512, bytes: bytes * 512 };
    assert_eq!(vbd.locate(0, 9, Right::Read), Ok(vec![place(4, 8), place(100, 1)]));
    assert_eq!(vbd.locate(3, 2, Right::Read), Ok(vec![place(7, 2)]));
    assert_eq!(vbd.locate(9, 0, Right::Read), Ok(vec![]));
    assert_eq!(vbd.locate(0, 10, Right::Read), Err(Denied));
    assert_eq!(vbd.locate(0, 1, Right::Write), Err(Denied));
}

//! Disks: what is answered, in which order, and what of the images is touched.

use xen_abi::PAGE_BYTES;
use xen_abi::block::{Discard, Indirect, Request, Response, Segment, operation, status};
use xen_fronts::disk::{Bench, SECTOR};
use xen_fronts::machine::{DATA, address};
use xen_io::block::{Denied, Extent, Job, Place, Right, Vbd};
use xen_io::limits::MAX_BYTES_UNDER_WAY;
use xen_io::{Memory, Range};

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

//! Front-ends that write anything anywhere.

use fastrand::Rng;
use xen_abi::PAGE_BYTES;
use xen_abi::block::Response;
use xen_fronts::disk::Bench;
use xen_fronts::machine::{DATA, RING, address};
use xen_io::{Broken, Memory};

#[test]
fn an_index_out_of_reach_ends_the_disk() {
    for producer in [33, 1 << 31, u32::MAX] {
        let mut bench = Bench::new(1);
        bench.front.set(0, producer);
        let expected = Broken::Index { index: producer, most: 32 };
        for _ in 0..2 {
            assert_eq!(bench.block.serve(&mut bench.keeper), Err(expected));
        }
        assert!(bench.front.take::<Response>().is_empty());
        assert!(bench.block.is_idle());
    }
}

#[test]
fn jobs_of_a_broken_ring_end_and_are_not_answered() {
    let mut random = Rng::with_seed(3);
    let mut bench = Bench::new(1);
    bench.keeper.is_slow = true;
    let mut request =
        xen_abi::block::Request { count: 1, id: 5, ..xen_abi::block::Request::zeroed() };
    request.segments[0].reference = DATA;
    bench.front.put(&request.to_bytes());
    bench.front.push();
    bench.block.serve(&mut bench.keeper).expect("it is a ring");
    bench.front.set(0, 1000 + random.u32(..1 << 30));
    assert!(bench.block.serve(&mut bench.keeper).is_err() && !bench.block.is_idle());
    assert_eq!(bench.keeper.grants.in_use(), 2, "the ring, and what a job writes to");
    bench.keeper.finish(0);
    assert!(bench.block.serve(&mut bench.keeper).is_err());
    assert!(bench.block.is_idle() && bench.front.take::<Response>().is_empty());
    assert_eq!(bench.keeper.grants.in_use(), 1);
}

/// Requests of random bytes, or nearly right ones, while entries of the grant table change.
#[test]
fn random_requests_are_answered_one_by_one_or_the_ring_is_broken() {
    let mut answered = 0;
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let mut bench = Bench::new(1 << random.usize(..3));
        for _ in 0..40 {
            scribble(&mut bench, &mut random);
            bench.keeper.is_slow = random.bool();
            bench.keeper.fails = random.u8(..8) == 0;
            let room =
                28_u32.saturating_sub(bench.front.produced.wrapping_sub(bench.front.consumed));
            for _ in 0..random.u32(..=room) {
                let mut bytes = [0; 112];
                random.fill(&mut bytes);
                if random.u8(..4) > 0 {
                    nearly_right(&mut bytes, &mut random);
                }
                bench.front.put(&bytes);
            }
            bench.front.push();
            while bench.block.serve(&mut bench.keeper).expect("the indices are right").is_unfinished
            {
            }
            while !bench.keeper.under_way.is_empty() && random.bool() {
                bench.keeper.finish(random.usize(..bench.keeper.under_way.len()));
            }
            answered += bench.front.take::<Response>().len();
        }
        bench.keeper.is_slow = false;
        loop {
            while !bench.keeper.under_way.is_empty() {
                bench.keeper.finish(0);
            }
            let turn = bench.block.serve(&mut bench.keeper).expect("the indices are right");
            if !turn.is_unfinished && bench.keeper.under_way.is_empty() {
                break;
            }
        }
        answered += bench.front.take::<Response>().len();
        assert_eq!(bench.front.consumed, bench.front.produced, "seed {seed}");
        assert_eq!(bench.block.bytes_under_way(), 0, "seed {seed}");
        drop(bench.block);
        assert_eq!((bench.keeper.grants.in_use(), bench.front.machine.references()), (0, 0));
    }
    assert!(answered > 10_000, "{answered}");
}

/// A request whose numbers are small.
fn nearly_right(bytes: &mut [u8; 112], random: &mut Rng) {
    bytes[0] = random.u8(..7);
    bytes[1] = random.u8(..13);
    bytes[16..24].copy_from_slice(&random.u64(..9200).to_le_bytes());
    for segment in bytes[24..].chunks_exact_mut(8) {
        segment[..4].copy_from_slice(&random.u32(DATA..DATA + 20).to_le_bytes());
        segment[4] = random.u8(..4);
        segment[5] = random.u8(..9);
    }
}

/// Change grants, and the pages that segments are in.
fn scribble(bench: &mut Bench, random: &mut Rng) {
    let reference = random.u32(DATA..DATA + 20);
    match random.u8(..4) {
        0 => bench.front.machine.permit(reference, random.u32(..700), random.u16(..8)),
        1 => bench.front.machine.permit(reference, reference, 0),
        _ => {
            let mut bytes = [0; 64];
            random.fill(&mut bytes);
            let at = address(reference).plus(random.u64(..(PAGE_BYTES - 64) as u64));
            bench.front.machine.write(at, &bytes).expect("it is there");
        }
    }
    assert!(reference > RING);
}

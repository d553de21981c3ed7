//! Back-ends take and put references while the domain makes page tables of the same frames.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use frames::{FrameType, Frames, Level, Tables};
use xen_abi::Mfn;

use crate::support::{BASE, Domain, frame};

const ROUNDS: u64 = 100_000;

/// Frames that both sides want.
const CONTENDED: u64 = 3;

/// Take and put, as a back-end does; how often it got a frame.
fn write(frames: Frames<'_>) -> u64 {
    let mut got = 0;
    for round in 0..ROUNDS {
        let mfn = frame(round % CONTENDED);
        if frames.take_writable(mfn).is_ok() {
            assert_eq!(frames.frame_type(mfn), FrameType::Writable);
            got += 1;
            frames.put_writable(mfn);
        }
    }
    got
}

#[test]
fn no_frame_is_a_table_and_writable() {
    let Domain { records, mut state, mut machine } = Domain::new(0);
    let frames = Frames::new(Mfn(BASE), &records);
    let (got, mut pinned) = (AtomicU64::new(0), 0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| got.fetch_add(write(frames), Ordering::Relaxed));
        }
        for round in 0..ROUNDS {
            let mfn = frame(round % CONTENDED);
            let mut tables = Tables::new(frames, &mut state, &mut machine, 0);
            if tables.pin(mfn, Level::L1).is_ok() {
                assert!(frames.take_writable(mfn).is_err());
                assert_eq!(frames.frame_type(mfn), FrameType::L1);
                tables.unpin(mfn).expect("it is pinned");
                pinned += 1;
            }
        }
    });
    assert!(pinned > 0 && got.into_inner() > 0, "both sides had their turn");
    assert_eq!(Tables::new(frames, &mut state, &mut machine, 0).audit(&[]), []);
}

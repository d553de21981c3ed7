//! The ring of a domain's disk, of which the input is the front-end: what it puts in, where it says that this ends,
//! which grants it gives, and what of that it takes back. All grants and references are given back at the end.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use xen_fronts::disk::Bench;
use xen_fronts::machine::{DATA, address};
use xen_io::Memory;

/// Turns of a ring that has more to do.
const MAX_TURNS: usize = 100;

#[derive(Debug, Arbitrary)]
enum Step {
    Request { operation: u8, count: u8, sector: u64, segments: [(u8, u8, u8); 11] },
    Indirect { operation: u8, count: u16, sector: u64, pages: [u8; 8] },
    Bytes(Box<[u8; 32]>),
    Push,
    Index { which: u8, value: u32 },
    Permit { reference: u8, frame: u16, flags: u8 },
    Revoke { reference: u8 },
    Page { frame: u8, at: u16, value: u64 },
    Serve,
    Slow { is_slow: bool, fails: bool },
    Finish { position: u8 },
}

fuzz_target!(|input: (u8, Vec<Step>)| {
    let (pages, steps) = input;
    let mut bench = Bench::new(1 << (pages % 3));
    for (id, step) in steps.iter().enumerate() {
        carry_out(&mut bench, id as u64, step);
    }
    end(bench);
});

fn put(bench: &mut Bench, bytes: &[u8]) {
    if bench.front.produced.wrapping_sub(bench.front.consumed) < 28 {
        bench.front.put(bytes);
    }
}

fn carry_out(bench: &mut Bench, id: u64, step: &Step) {
    match step {
        Step::Request { operation, count, sector, segments } => {
            let mut bytes = [0; 112];
            (bytes[0], bytes[1]) = (operation % 8, count % 16);
            bytes[8..16].copy_from_slice(&id.to_le_bytes());
            bytes[16..24].copy_from_slice(&sector.to_le_bytes());
            for ((reference, first, last), to) in
                segments.iter().zip(bytes[24..].chunks_exact_mut(8))
            {
                to[..4].copy_from_slice(&(DATA + u32::from(reference % 40)).to_le_bytes());
                (to[4], to[5]) = (first % 10, last % 10);
            }
            put(bench, &bytes);
        }
        Step::Indirect { operation, count, sector, pages } => {
            let mut bytes = [0; 112];
            (bytes[0], bytes[1]) = (6, operation % 8);
            bytes[2..4].copy_from_slice(&count.to_le_bytes());
            bytes[8..16].copy_from_slice(&id.to_le_bytes());
            bytes[16..24].copy_from_slice(&sector.to_le_bytes());
            for (page, to) in pages.iter().zip(bytes[28..].chunks_exact_mut(4)) {
                to.copy_from_slice(&(DATA + u32::from(page % 40)).to_le_bytes());
            }
            put(bench, &bytes);
        }
        Step::Bytes(bytes) => {
            let mut entry = [0; 112];
            entry[..32].copy_from_slice(&**bytes);
            put(bench, &entry);
        }
        Step::Push => _ = bench.front.push(),
        Step::Index { which, value } => bench.front.set(4 * u64::from(which % 4), *value),
        Step::Permit { reference, frame, flags } => {
            let reference = 2 + u32::from(*reference);
            bench.front.machine.permit(reference, u32::from(*frame) % 700, (*flags).into());
        }
        Step::Revoke { reference } => {
            let entry = xen_abi::grant::EntryV1 { flags: 0, domain: 0, frame: 0 };
            bench.front.machine.set_entry(u32::from(*reference), entry);
        }
        Step::Page { frame, at, value } => {
            let place = address(DATA + u32::from(frame % 40)).plus(u64::from(at % 512) * 8);
            bench.front.machine.write(place, &value.to_le_bytes()).expect("it is there");
        }
        Step::Serve => serve(bench),
        Step::Slow { is_slow, fails } => {
            (bench.keeper.is_slow, bench.keeper.fails) = (*is_slow, *fails);
        }
        Step::Finish { position } => {
            if !bench.keeper.under_way.is_empty() {
                let count = bench.keeper.under_way.len();
                bench.keeper.finish(usize::from(*position) % count);
            }
        }
    }
}

fn serve(bench: &mut Bench) {
    for _ in 0..MAX_TURNS {
        if !bench.block.serve(&mut bench.keeper).is_ok_and(|turn| turn.is_unfinished) {
            return;
        }
    }
}

/// Everything that is under way ends, and what was taken is given back.
fn end(mut bench: Bench) {
    bench.keeper.is_slow = true;
    while !bench.keeper.under_way.is_empty() {
        bench.keeper.finish(0);
    }
    let _ = bench.block.drain(&mut bench.keeper);
    assert!(bench.block.is_idle());
    drop(bench.block);
    assert_eq!((bench.keeper.grants.in_use(), bench.front.machine.references()), (0, 0));
}

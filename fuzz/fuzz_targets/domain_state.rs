//! The saved state of a domain of Xen's interface, with bytes that somebody has changed: it is refused, or what goes on
//! is a domain, with counts that are right.

#![no_main]

use fuzz::domain::{Bench, Step};
use libfuzzer_sys::fuzz_target;

/// Between them, steps.
const MAX_RESTORES: usize = 4;

fuzz_target!(|input: (Vec<Step>, Vec<(u16, u8)>)| {
    let (steps, changes) = input;
    let mut bench = Bench::new();
    let mut restores = 0;
    for step in &steps {
        if matches!(step, Step::GoOn { .. }) {
            restores += 1;
            if restores > MAX_RESTORES {
                continue;
            }
        }
        bench.carry_out(step);
    }
    bench.carry_out(&Step::GoOn { changes });
    bench.check();
});

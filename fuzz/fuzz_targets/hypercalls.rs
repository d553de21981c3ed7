//! A domain's hypercalls, with wild and with nearly right arguments, between writes of its memory and of what it shares
//! with the hypervisor: each is answered in bounded time, and all uses of frames are counted as they are afterwards.

#![no_main]

use fuzz::domain::{Bench, Step};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|steps: Vec<Step>| {
    let mut bench = Bench::new();
    for step in steps.iter().filter(|step| !matches!(step, Step::GoOn { .. })) {
        bench.carry_out(step);
    }
    bench.check();
});

//! The second 8259, which is cascaded.

#![no_main]

use fuzz::{Step, drive};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|steps: Vec<Step>| drive(steps, Some(0xa0..0xa2)));

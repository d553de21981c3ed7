//! The real-time clock.

#![no_main]

use fuzz::{Step, drive};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|steps: Vec<Step>| drive(steps, Some(0x70..0x72)));

//! The firmware configuration device, with requests in guest memory.

#![no_main]

use fuzz::{Step, drive};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|steps: Vec<Step>| drive(steps, Some(0x510..0x51c)));

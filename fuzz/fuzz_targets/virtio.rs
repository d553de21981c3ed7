//! The PCI bus and a virtio device on it, with rings in guest memory.

#![no_main]

use fuzz::{Step, drive};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|steps: Vec<Step>| drive(steps, Some(0xcf8..0xd00)));

//! ACPI's fixed hardware.

#![no_main]

use fuzz::{Step, drive};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|steps: Vec<Step>| drive(steps, Some(0x600..0x60c)));

//! A measurement of what a stop of directly executed code costs on this host.
//!
//! The cheapest of many stops is what counts. Undisturbed stops differ by a few in a hundred, but when a dozen machines
//! start at once most of them wait for a core, and their average is seven times the price: a machine that believed it
//! would translate, for as long as it lives, what the next one runs directly.

use std::sync::Arc;

use direct::{Helpers, Kick, Protection, Registers, Stop, TimeStamp};

use crate::context::XsaveArea;
use crate::memory::PAGE_SIZE;
use crate::time::time_stamp;

/// Stops that are measured.
const STOPS: u64 = 160;

/// Linear address of the program.
const CODE: u64 = 0x40_0000;

/// `syscall; jmp` back to it.
const PROGRAM: [u8; 4] = [0x0f, 0x05, 0xeb, 0xfc];

/// Cycles for a stop, and for going on: those of a system call that does nothing. The first page of
/// guest memory is used, and left as it was; no guest may be running.
///
/// # Errors
///
/// [`direct::Error`] when a helper cannot be had, or does not do what it should.
pub fn stop_cycles(
    helpers: &Arc<Helpers>,
    memory: &host::GuestMemory,
) -> Result<u64, direct::Error> {
    use std::os::unix::fs::FileExt;
    let file = memory.file();
    let failed = |source| direct::Error::Host { action: "measure direct execution", source };
    let mut before = [0; PROGRAM.len()];
    file.read_exact_at(&mut before, 0).map_err(failed)?;
    file.write_all_at(&PROGRAM, 0).map_err(failed)?;
    let measured = measure(helpers);
    file.write_all_at(&before, 0).map_err(failed)?;
    measured
}

fn measure(helpers: &Arc<Helpers>) -> Result<u64, direct::Error> {
    let mut space = helpers.space(TimeStamp::Native)?;
    space.map(CODE, PAGE_SIZE, 0, Protection { write: false, execute: true }, true)?;
    let (mut registers, mut extended) = (Registers::at(CODE), XsaveArea::initial());
    let kick = Kick::new();
    let mut best = u64::MAX;
    for _ in 0..STOPS {
        let began = time_stamp();
        let stop = space.run(&mut registers, &mut extended.0, &kick);
        let passed = time_stamp().wrapping_sub(began);
        if stop != Stop::SystemCall {
            tracing::debug!(?stop, "a helper did not make a system call");
            return Err(direct::Error::Died);
        }
        best = best.min(passed);
    }
    Ok(best)
}

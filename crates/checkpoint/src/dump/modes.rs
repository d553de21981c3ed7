//! How a thread runs that does not run as usual: scheduling, and modes of the kernel and of the processor.

use inject::{Area, Script};

use super::answer::{expect, word};
use crate::error::Error;
use crate::modes::{
    ATTRIBUTES_BYTES, DEADLINE, FLAGS, FORBIDDEN, GET_IDENTIFICATION, SPECULATIONS, THREAD,
};
use crate::proc::status::Status;
use crate::state::Bytes;
use crate::state::modes::Modes;

/// `PR_TSC_SIGSEGV`.
const NO_COUNTER: u64 = 2;
/// `PR_SPEC_PRCTL`: a thread may say.
const IS_ITS_OWN: u32 = 1;

/// Where answers will be.
pub(super) struct Asked {
    first: usize,
    attributes: u64,
    counter: u64,
}

/// Add the calls that tell.
pub(super) fn ask(script: &mut Script) -> Asked {
    let (attributes, counter) = (script.room(ATTRIBUTES_BYTES), script.room(8));
    let prctl = |option: i32| u64::from(option.cast_unsigned());
    let bytes = ATTRIBUTES_BYTES as u64;
    let first = script.call(libc::SYS_sched_getattr, [0, attributes, bytes, 0]);
    script.call(libc::SYS_ioprio_get, [THREAD, 0]);
    script.call(libc::SYS_personality, [u32::MAX.into()]);
    script.call(libc::SYS_prctl, [prctl(libc::PR_GET_TSC), counter, 0, 0, 0]);
    script.call(libc::SYS_arch_prctl, [GET_IDENTIFICATION, 0]);
    for which in 0..SPECULATIONS {
        let option = prctl(libc::PR_GET_SPECULATION_CTRL);
        script.call(libc::SYS_prctl, [option, which.into(), 0, 0, 0]);
    }
    Asked { first, attributes, counter }
}

/// What was answered.
pub(super) fn answered(
    pid: u32,
    area: &Area,
    asked: &Asked,
    results: &[i64],
) -> Result<Modes, Error> {
    let result = |place: usize| results.get(asked.first + place).copied().unwrap_or(-1);
    expect(pid, "tell how it is scheduled", result(0))?;
    let at = |offset: u64| word(area, asked.attributes + offset);
    let low = |word: u64| (word & 0xffff_ffff) as u32;
    let policy = low(at(0)? >> 32);
    let speculation = (0..SPECULATIONS).filter_map(|which| {
        let how = u32::try_from(result(5 + which as usize)).ok()?;
        let is_forbidden = how & IS_ITS_OWN != 0 && how & FORBIDDEN != 0;
        is_forbidden.then_some((which, how & FORBIDDEN))
    });
    Ok(Modes {
        policy,
        priority: low(at(16)? >> 32),
        // The others have the length of a slice there, which is the host's.
        deadline: if policy == DEADLINE { [at(24)?, at(32)?, at(40)?] } else { [0; 3] },
        flags: at(8)? & FLAGS,
        processors: Bytes::default(),
        input_priority: u32::try_from(result(1)).unwrap_or(0),
        personality: u32::try_from(expect(pid, "tell its execution domain", result(2))?)
            .unwrap_or(0),
        no_counter: result(3) == 0 && word(area, asked.counter)? & 0xffff_ffff == NO_COUNTER,
        no_identification: result(4) == 0,
        speculation: speculation.collect(),
    })
}

/// The processors that a task may run on.
pub(super) fn processors(status: &Status) -> Bytes {
    Bytes(status.words("Cpus_allowed").first().map_or_else(Vec::new, |mask| parse(mask)))
}

/// Those that we may run on ourselves, which are what is usual.
pub(super) fn our_processors() -> Result<Bytes, Error> {
    Ok(processors(&Status::read(std::process::id(), "status")?))
}

/// A map of processors, as words in hexadecimal, the highest first.
fn parse(mask: &str) -> Vec<u8> {
    let words = mask.rsplit(',').map(|word| u32::from_str_radix(word, 16).unwrap_or(0));
    let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(used);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_processors_are_parsed() {
        assert_eq!(parse("3"), [3]);
        assert_eq!(parse("00000100,00000000,80000001"), [1, 0, 0, 0x80, 0, 0, 0, 0, 0, 1]);
        assert_eq!(parse("0"), []);
        assert_eq!(parse("what"), []);
    }
}

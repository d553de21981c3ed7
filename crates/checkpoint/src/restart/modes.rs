//! How a thread runs that does not run as usual: scheduling, and modes of the kernel and of the processor.

use super::plan::Plan;
use crate::modes::{ATTRIBUTES_BYTES, DEADLINE, SET_IDENTIFICATION, THREAD};
use crate::state::Thread;
use crate::state::modes::Modes;

/// `PR_TSC_SIGSEGV`.
const NO_COUNTER: u64 = 2;

/// Add the calls that make a thread run as it did.
pub(super) fn set(plan: &mut Plan<'_>, thread: &Thread) {
    let modes = &thread.modes;
    let prctl = |option: i32| u64::from(option.cast_unsigned());
    if !modes.processors.is_empty() {
        // Where there are no such processors, it runs on any.
        let map = plan.data(&modes.processors);
        let bytes = modes.processors.len() as u64;
        plan.may(libc::SYS_sched_setaffinity, [0, bytes, map]);
    }
    if modes.policy != 0 || modes.flags != 0 {
        let attributes = plan.data(&attributes(modes, thread.nice));
        plan.must("have its scheduling policy", libc::SYS_sched_setattr, [0, attributes, 0]);
    }
    if modes.input_priority != 0 {
        let arguments = [THREAD, 0, modes.input_priority.into()];
        plan.must("have the priority of its input", libc::SYS_ioprio_set, arguments);
    }
    if modes.personality != 0 {
        let domain = [modes.personality.into()];
        plan.must("have its execution domain", libc::SYS_personality, domain);
    }
    for (which, how) in &modes.speculation {
        // A processor that does not speculate so forbids it anyway.
        let option = prctl(libc::PR_SET_SPECULATION_CTRL);
        plan.may(libc::SYS_prctl, [option, (*which).into(), (*how).into(), 0, 0]);
    }
    if modes.no_counter {
        let arguments = [prctl(libc::PR_SET_TSC), NO_COUNTER, 0, 0, 0];
        plan.must("be kept from the time-stamp counter", libc::SYS_prctl, arguments);
    }
    if modes.no_identification {
        let arguments = [SET_IDENTIFICATION, 0];
        plan.must("be kept from identifying its processor", libc::SYS_arch_prctl, arguments);
    }
}

/// `struct sched_attr`.
fn attributes(modes: &Modes, nice: i32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ATTRIBUTES_BYTES);
    bytes.extend((ATTRIBUTES_BYTES as u32).to_ne_bytes());
    bytes.extend(modes.policy.to_ne_bytes());
    bytes.extend(modes.flags.to_ne_bytes());
    bytes.extend(nice.to_ne_bytes());
    bytes.extend(modes.priority.to_ne_bytes());
    let deadline = if modes.policy == DEADLINE { modes.deadline } else { [0; 3] };
    bytes.extend(deadline.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

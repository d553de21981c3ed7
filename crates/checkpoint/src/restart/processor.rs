//! Whether this processor is as good as the one that the processes had.

use host::processes::extended::component;
use host::processes::features::features;

use crate::error::Error;
use crate::state::State;

/// The component with the rights of protection keys (Intel SDM volume 1, section 13.5.7).
const PKRU: u32 = 9;

/// What Linux gives a process that has asked for no key (`init_pkru_value` of arch/x86/mm/pkeys.c).
const PKRU_OF_NO_KEYS: u64 = 0x5555_5554;

/// Whether a component that this processor has not means nothing to a thread that had this in it.
pub(super) fn can_do_without(number: u32, bytes: &[u8]) -> bool {
    number == PKRU && component(PKRU).is_none() && *bytes == PKRU_OF_NO_KEYS.to_le_bytes()
}

/// Refuse an image whose processes may use, or have in their registers, what this processor has not.
pub(super) fn check(state: &State) -> Result<(), Error> {
    let own = features();
    let lacks = |name: &&String| !own.contains(&name.as_str());
    let missing: Vec<&str> = state.processor.iter().filter(lacks).map(String::as_str).collect();
    if !missing.is_empty() {
        let what = format!("its processor had {}, which this one has not", missing.join(", "));
        return Err(Error::Host(what));
    }
    let threads = state.processes.iter().flat_map(|process| &process.threads);
    for (number, bytes) in threads.flat_map(|thread| &thread.extended.components) {
        let is_other = component(*number).is_none_or(|(_, length)| length != bytes.len());
        if is_other && !can_do_without(*number, bytes) {
            let what =
                format!("its processor had registers of kind {number} (XSAVE) of another size");
            return Err(Error::Host(what));
        }
    }
    Ok(())
}

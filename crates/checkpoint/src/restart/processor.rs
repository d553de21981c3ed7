//! Whether this processor is as good as the one that the processes had.

use host::processes::extended::component;
use host::processes::features::features;

use crate::error::Error;
use crate::state::State;

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
        if component(*number).is_none_or(|(_, length)| length != bytes.len()) {
            let what =
                format!("its processor had registers of kind {number} (XSAVE) of another size");
            return Err(Error::Host(what));
        }
    }
    Ok(())
}

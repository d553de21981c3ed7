//! Capabilities (capabilities(7)) that a process of root's drops.
//!
//! Each thread has capabilities of its own, which the threads that it starts inherit. So a thread
//! drops them while it is the only one, or while the others do not need them.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Drop all, also for what this thread starts or executes.
///
/// # Errors
///
/// The kernel's.
pub fn drop_all() -> Result<(), Errno> {
    keep(CapabilitySet::empty())
}

/// Drop all but those by which root serves files: to give them to their owners, and to reach and change
/// them whoever owns them; with `allows_privileges`, also to give programs capabilities.
///
/// # Errors
///
/// The kernel's.
pub fn keep_for_files(allows_privileges: bool) -> Result<(), Errno> {
    let mut kept = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID;
    kept.set(CapabilitySet::SETFCAP, allows_privileges);
    keep(kept)
}

fn keep(kept: CapabilitySet) -> Result<(), Errno> {
    let now = capabilities(None)?;
    // Who may not do this has nothing that an execve(2) could give: there is no such right without this one.
    if now.effective.contains(CapabilitySet::SETPCAP) {
        let others = CapabilitySet::all() - kept;
        for capability in others.iter() {
            match remove_capability_from_bounding_set(capability) {
                // A kernel that does not have it yet.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    clear_ambient_capability_set()?;
    let left = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In threads of their own: the others keep what they have.
    #[test]
    fn what_is_dropped_is_gone_and_what_is_kept_was_there() {
        let before = capabilities(None).unwrap();
        let after = |drop: fn() -> Result<(), Errno>| {
            let thread = std::thread::spawn(move || {
                drop().unwrap();
                capabilities(None).unwrap()
            });
            thread.join().unwrap()
        };
        let none = after(drop_all);
        assert!(none.effective.is_empty() && none.permitted.is_empty(), "{none:?}");
        let files = after(|| keep_for_files(false));
        let kept = CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE;
        let kept = kept | CapabilitySet::FOWNER | CapabilitySet::FSETID;
        assert_eq!(files.effective, before.effective & kept);
        assert_eq!(files.permitted, before.permitted & kept);
        assert_eq!(capabilities(None).unwrap(), before);
    }
}

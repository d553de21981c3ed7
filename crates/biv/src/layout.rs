//! Starting again until the host has put this process where it leaves room for the guest's kernel.
//!
//! The kernel's memory is mirrored at this process's addresses, of which it needs almost all (`cpu`'s
//! memory/mirror.rs). `biv` itself is linked above these, but Linux decides where stack and libraries
//! are: at the top of the address space, a random distance down. On most hosts that is at most 1 TiB;
//! some make it up to 16 TiB (`vm.mmap_rnd_bits=32`), of which one eighth suits us; and where the stack has
//! no limit, libraries start at a third of the address space. All that is decided anew by each
//! execve(2), which takes a millisecond: much less than a boot without the mirror costs. Whoever has
//! bad luck every time goes without.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How often we start again. With one chance in eight, one in six hundred goes without the mirror.
const ATTEMPTS: u32 = 48;

/// How this process knows how often that was.
const VARIABLE: &str = "BIVOUAC_LAYOUT_ATTEMPTS";

/// The stack's limit where it has none: Linux's default, in bytes.
const STACK_BYTES: u64 = 8 << 20;

/// Return if this process lies well, or does not get to. To be called before anything is open or
/// running.
pub fn settle() {
    if vmm::has_room_for_kernel() {
        return;
    }
    let attempts = env::var(VARIABLE).ok().and_then(|number| number.parse().ok()).unwrap_or(0);
    if attempts >= ATTEMPTS {
        return;
    }
    let stack = getrlimit(Resource::Stack);
    if stack.current.is_none() {
        let limited = Rlimit { current: Some(STACK_BYTES), ..stack };
        // Without it, we just try in vain.
        let _ = setrlimit(Resource::Stack, limited);
    }
    let mut arguments = env::args_os();
    let mut again = Command::new("/proc/self/exe");
    again.arg0(arguments.next().unwrap_or_default()).args(arguments);
    // It returns only if it fails, and then we stay as we are.
    let error = again.env(VARIABLE, (attempts + 1).to_string()).exec();
    tracing::debug!(%error, "cannot start again for another layout");
}

//! Executes the program again until the host has placed this process at addresses that a guest's
//! kernel does not use.
//!
//! The engine mirrors the kernel's memory at addresses of this process (`cpu`'s memory/place.rs),
//! and all of the guest kernel's addresses are among these. `biv` is linked at addresses that Linux
//! does not use. But the host places stack and libraries: at the top of the address space, a random
//! distance down. On most hosts that distance is at most 1 TiB, of which a third suits us. Some
//! hosts make it up to 16 TiB (`vm.mmap_rnd_bits=32`), and where the stack has no limit, libraries
//! start at a third of the address space. Each execve(2) decides all of that anew, and takes a
//! millisecond: much less than a boot without the mirror costs. After many attempts in vain the
//! process accepts addresses that Linux hardly uses; after all of them it goes on without the
//! mirror.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{self, Command};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vmm::RoomForKernel;

/// How often we start again, and after how many times the second best will do. With one chance in three, one
/// in seven hundred gets to that.
const ATTEMPTS: u32 = 48;
const CHOOSY_ATTEMPTS: u32 = 16;

/// How this process knows how often that was: its number, which execve(2) keeps, and how often.
const VARIABLE: &str = "BIVOUAC_LAYOUT_ATTEMPTS";

/// The stack's limit where it has none: Linux's default, in bytes.
const STACK_BYTES: u64 = 8 << 20;

/// Return if this process lies well, or does not get to. To be called before anything is open or
/// running.
pub fn settle() {
    let attempts = attempts().unwrap_or(0);
    let wanted =
        if attempts < CHOOSY_ATTEMPTS { RoomForKernel::Own } else { RoomForKernel::Shared };
    if attempts >= ATTEMPTS || vmm::room_for_kernel() >= wanted || !is_random() {
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
    let error = again.env(VARIABLE, format!("{}:{}", process::id(), attempts + 1)).exec();
    tracing::debug!(%error, "cannot start again for another layout");
}

/// Whether the host puts a program elsewhere each time: not if the administrator or who started us (a debugger)
/// does not want that (proc(5), `randomize_va_space` and `personality`).
fn is_random() -> bool {
    const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let personality = u32::from_str_radix(read("/proc/self/personality").trim(), 16).unwrap_or(0);
    read("/proc/sys/kernel/randomize_va_space").trim() != "0"
        && personality & ADDR_NO_RANDOMIZE == 0
}

/// Go on with [`settle`], before anything else, if that is why this process has been started.
pub fn settle_further() {
    if attempts().is_some() {
        settle();
    }
}

/// How often this process has started again.
fn attempts() -> Option<u32> {
    of_process(&env::var(VARIABLE).ok()?, process::id())
}

/// What the variable says to a process; nothing if it is another's.
fn of_process(text: &str, own: u32) -> Option<u32> {
    let (process, attempts) = text.split_once(':')?;
    let is_own = process.parse().is_ok_and(|number: u32| number == own);
    is_own.then(|| attempts.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::of_process;

    #[test]
    fn attempts_are_a_processs_own() {
        assert_eq!(of_process("17:3", 17), Some(3));
        assert_eq!(of_process("17:3", 18), None);
        assert_eq!(of_process("17:", 17), None);
        assert_eq!(of_process("3", 3), None);
    }
}

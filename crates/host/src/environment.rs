//! The environment variables of this process (environ(7)), which often have secrets: keys, tokens.
//! A machine's process needs none of them once it runs, and its guest's kernel may come to read its
//! memory.

use std::os::raw::c_char;

/// Whether a program of this name is in one of the directories of `PATH`.
#[must_use]
pub fn is_in_search_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

unsafe extern "C" {
    /// The C library's list, with a null pointer at its end.
    static mut environ: *mut *mut c_char;
}

/// Overwrite every variable where the kernel has put it, on the stack of the first thread, and empty the
/// list. `/proc/PID/environ` shows zeroes afterwards.
///
/// Who asks for a variable later finds none. What has been copied before is not found here: what does so with
/// variables that may be secret (`std::env::vars_os`, `Command::env` without `env_clear`) has no place in a
/// process that calls this.
pub fn forget() {
    // SAFETY: the list and its strings are as the kernel laid them out: no code of this program changes
    // variables, which would be `unsafe`. The stack that has them is writable. Another thread that reads one
    // meanwhile finds it shorter, and never misses its end, which stays zero.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let length = libc::strlen(*entry);
            for at in 0..length {
                (*entry).add(at).write_volatile(0);
            }
            entry = entry.add(1);
        }
        libc::clearenv();
    }
}

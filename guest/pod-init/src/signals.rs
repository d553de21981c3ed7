//! Signals as a new system has them: what the keeper blocks, and what whoever has started it ignores (nohup(1)), is
//! not so for the pod's processes, which would inherit both.

use std::io;

/// Unblocks all signals, and has each do what it does if nobody says otherwise.
#[expect(unsafe_code, reason = "system calls that no safe crate has")]
pub fn reset() -> io::Result<()> {
    for number in 1..=libc::SIGRTMAX() {
        // Rust's library sees to this one, here and in what it starts.
        if number != libc::SIGPIPE {
            // SAFETY: no handler is set. There are numbers for which nothing can be (KILL, STOP, those of libc), which
            // the call refuses.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
    }
    // SAFETY: the calls write a set that is ours, and read it.
    let answer = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

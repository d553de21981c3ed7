//! Standard streams that are closed when a process starts.
//!
//! Rust's library opens `/dev/null` for them, so that no other file gets their numbers. A write to
//! such a stream then seems to succeed, although the user who closed it (`>&-` in a shell) wants an
//! error. So this module looks at the streams before the library opens anything.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

/// Which of the standard streams were closed when this process was started: a bit for each.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// What the C library calls before `main`, and so before Rust's library opens anything (the System V ABI's
/// "Initialization and Termination Functions").
#[used]
// SAFETY: the section is an array of pointers to functions without arguments, which this is.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for number in 0..3 {
        // SAFETY: the call looks at a number.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

/// Makes the standard streams that this process was started without fail as closed ones do (EBADF), also in
/// what it starts: each is a file that is open for the other direction.
///
/// # Errors
///
/// The host's.
pub fn keep_closed() -> io::Result<()> {
    let closed = CLOSED.load(Ordering::Relaxed);
    let nothing =
        |writable: bool| File::options().read(!writable).write(writable).open("/dev/null");
    if closed & 1 != 0 {
        rustix::stdio::dup2_stdin(nothing(true)?)?;
    }
    if closed & 2 != 0 {
        rustix::stdio::dup2_stdout(nothing(false)?)?;
    }
    if closed & 4 != 0 {
        rustix::stdio::dup2_stderr(nothing(false)?)?;
    }
    Ok(())
}

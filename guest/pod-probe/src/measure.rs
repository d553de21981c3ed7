//! What calls about names cost: those of figure 6 of "Operating System Virtualization", timed in this process. One
//! line a call: `NAME NANOSECONDS`.
#![expect(unsafe_code, reason = "system calls that no safe crate has")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, getpgid, getpid, getsid, waitpid};

use crate::{Failure, failed};

/// How long each call is repeated.
const SPAN: Duration = Duration::from_millis(60);

/// Calls between two looks at the clock, of those that cost nanoseconds and of those that cost microseconds.
const MANY: u32 = 1000;
const FEW: u32 = 5;

/// The size of the segments, as in the paper's time: a page.
const SEGMENT_BYTES: usize = 4096;

/// Times all of them.
pub fn measure() -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(failed("this program"))?;
    say("getpid", MANY, || {
        let _ = std::hint::black_box(getpid());
        Ok(())
    })?;
    say("getsid", MANY, || {
        let _ = std::hint::black_box(getsid(None));
        Ok(())
    })?;
    say("getpgid", MANY, || {
        let _ = std::hint::black_box(getpgid(None));
        Ok(())
    })?;
    say("fork", FEW, fork)?;
    say("execve", FEW, || {
        let status = Command::new(&own).arg("nothing").stdin(Stdio::null()).status();
        status.map(drop).map_err(failed("execve"))
    })?;
    say("shmget", FEW, || {
        remove(segment()?);
        Ok(())
    })?;
    let id = segment()?;
    let attached = say("shmat", FEW, || attach(id));
    remove(id);
    attached
}

/// Repeats a call for a while, and says what one costs.
fn say(
    name: &str,
    at_once: u32,
    mut call: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    call()?;
    let (start, mut count) = (Instant::now(), 0_u32);
    while start.elapsed() < SPAN {
        for _ in 0..at_once {
            call()?;
        }
        count += at_once;
    }
    println!("{name} {:.1}", start.elapsed().as_nanos() as f64 / f64::from(count));
    Ok(())
}

/// A process that ends at once, and its end.
fn fork() -> Result<(), Failure> {
    // SAFETY: this process has one thread, and its child does nothing but end.
    match unsafe { libc::fork() } {
        -1 => Err(failed("fork")(std::io::Error::last_os_error())),
        // SAFETY: the call ends the process, and runs nothing of it.
        0 => unsafe { libc::_exit(0) },
        child => {
            let child = rustix::process::Pid::from_raw(child);
            waitpid(child, WaitOptions::empty()).map(drop).map_err(|errno| format!("wait: {errno}"))
        }
    }
}

/// A new segment.
fn segment() -> Result<libc::c_int, Failure> {
    // SAFETY: the call takes numbers.
    match unsafe { libc::shmget(libc::IPC_PRIVATE, SEGMENT_BYTES, libc::IPC_CREAT | 0o600) } {
        -1 => Err(failed("shmget")(std::io::Error::last_os_error())),
        id => Ok(id),
    }
}

fn remove(id: libc::c_int) {
    // SAFETY: the command takes no structure.
    unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
}

/// Attaches a segment, and detaches it.
fn attach(id: libc::c_int) -> Result<(), Failure> {
    // SAFETY: the kernel chooses where it is, and nobody uses it.
    let at = unsafe { libc::shmat(id, std::ptr::null(), 0) };
    if at as isize == -1 {
        return Err(failed("shmat")(std::io::Error::last_os_error()));
    }
    // SAFETY: it was attached there, and nobody uses it.
    unsafe { libc::shmdt(at) };
    Ok(())
}

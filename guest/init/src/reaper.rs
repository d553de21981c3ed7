//! Collects every process that ends, as the first process must, and passes on how each ended.
//!
//! A thread of its own waits; the main loop polls a socket. The thread is started once a command
//! runs, and init switches the machine off when that command ends, so there is always a child to
//! wait for while anybody listens.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::process::{Pid, WaitOptions, wait};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By `exit` with this status.
    Exited(u8),
    /// By this signal.
    Signaled(u8),
}

/// Where the end of one process becomes readable.
pub struct Reaper {
    ends: UnixStream,
}

impl Reaper {
    /// Starts to reap everybody; the end of `watched` is reported.
    pub fn start(watched: u32) -> io::Result<Reaper> {
        let (ends, report) = UnixStream::pair()?;
        std::thread::Builder::new()
            .name("reaper".into())
            .stack_size(64 * 1024)
            .spawn(move || reap(watched, report))?;
        Ok(Reaper { ends })
    }

    /// How the watched process ended; blocks until it has.
    pub fn end(&self) -> io::Result<End> {
        let mut report = [0; 2];
        (&self.ends).read_exact(&mut report)?;
        Ok(match report {
            [0, status] => End::Exited(status),
            [_, signal] => End::Signaled(signal),
        })
    }
}

impl AsFd for Reaper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }
}

fn reap(watched: u32, mut report: UnixStream) {
    loop {
        let (pid, status) = match wait(WaitOptions::empty()) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        };
        if Pid::as_raw(Some(pid)).unsigned_abs() != watched {
            continue;
        }
        let line = match (status.exit_status(), status.terminating_signal()) {
            (Some(status), _) => [0, status as u8],
            (None, Some(signal)) => [1, signal as u8],
            (None, None) => continue,
        };
        // Nobody but init is left to care about what ends now; and it has only to switch off.
        let _ = report.write_all(&line);
        return;
    }
}

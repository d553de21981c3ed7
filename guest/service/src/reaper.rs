//! Reaps every process that ends, as the first process must, and reports how each ended.
//!
//! A thread of its own waits; the main loop polls a socket. The thread first waits without reaping,
//! and then reaps under a lock. Init holds that lock while it starts a command, because
//! std::process itself must reap a child that fails to start (it panics if another thread has).

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use locks::Unpoisoned;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, wait, waitid};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By `exit` with this status.
    Exited(u8),
    /// By this signal.
    Signaled(u8),
}

/// Held while a process is started.
static STARTING: Mutex<()> = Mutex::new(());

/// Tells that a process has been started.
static STARTED: Condvar = Condvar::new();

/// How long to pause while there is no child, unless one is started.
const NOBODY_PAUSE: Duration = Duration::from_millis(50);

/// No process is collected while this lives.
pub fn hold() -> MutexGuard<'static, ()> {
    STARTING.lock().unpoisoned()
}

/// A process has been started, while none was collected.
pub fn note_start(held: MutexGuard<'_, ()>) {
    drop(held);
    STARTED.notify_all();
}

/// Where the ends of processes become readable.
pub struct Reaper {
    ends: UnixStream,
    stop: Arc<AtomicBool>,
}

impl Reaper {
    /// Starts to reap everybody.
    pub fn start() -> io::Result<Reaper> {
        let (ends, report) = UnixStream::pair()?;
        let stop = Arc::new(AtomicBool::new(false));
        let its_stop = Arc::clone(&stop);
        std::thread::Builder::new()
            .name("reaper".into())
            .stack_size(64 * 1024)
            .spawn(move || reap(report, &its_stop))?;
        Ok(Reaper { ends, stop })
    }

    /// The process that has ended, and how; blocks until one has.
    pub fn end(&self) -> io::Result<(u32, End)> {
        let mut report = [0; 6];
        (&self.ends).read_exact(&mut report)?;
        let [p0, p1, p2, p3, kind, value] = report;
        let end = if kind == 0 { End::Exited(value) } else { End::Signaled(value) };
        Ok((u32::from_ne_bytes([p0, p1, p2, p3]), end))
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

impl AsFd for Reaper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }
}

fn reap(mut report: UnixStream, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(rustix::io::Errno::CHILD) => wait_for_child(),
            Err(_) => {}
            Ok(_) if stop.load(Ordering::SeqCst) => return,
            Ok(_) => {
                let _held = hold();
                if !collect(&mut report) {
                    return;
                }
            }
        }
    }
}

/// Waits until there may be a child.
fn wait_for_child() {
    let held = hold();
    // One that was started before this held them up has been told of already.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let nobody = |error| error == rustix::io::Errno::CHILD;
    if waitid(WaitId::All, options).is_err_and(nobody) {
        let waited = STARTED.wait_timeout(held, NOBODY_PAUSE);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Collects all that have ended; whether anybody listens.
fn collect(report: &mut UnixStream) -> bool {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        let (kind, value) = match (status.exit_status(), status.terminating_signal()) {
            (Some(status), _) => (0, status as u8),
            (None, Some(signal)) => (1, signal as u8),
            (None, None) => continue,
        };
        let [p0, p1, p2, p3] = Pid::as_raw(Some(pid)).to_ne_bytes();
        if report.write_all(&[p0, p1, p2, p3, kind, value]).is_err() {
            return false;
        }
    }
    true
}

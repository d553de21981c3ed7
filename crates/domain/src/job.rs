//! Work that takes a while: a thread of its own does it, for a loop that polls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};

/// See above.
pub struct Job<T> {
    result: Receiver<Result<T, String>>,
    /// Rung when it is done.
    bell: Arc<OwnedFd>,
}

/// Rings when it goes.
struct Ring(Arc<OwnedFd>);

impl Drop for Ring {
    fn drop(&mut self) {
        // There is room for the one that rings it.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl<T: Send + 'static> Job<T> {
    /// Starts it, on a thread of this name.
    pub fn start(
        name: &str,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<Self, String> {
        Self::try_start(name, work).map_err(|error| format!("no thread can be had for it: {error}"))
    }

    fn try_start(
        name: &str,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (ring, (sender, result)) = (Ring(Arc::clone(&bell)), mpsc::channel());
        thread::Builder::new().name(name.into()).spawn(move || {
            // Rung when the result is there, or never will be.
            let _ring = ring;
            let sender = sender;
            let _ = sender.send(work());
        })?;
        Ok(Self { result, bell })
    }

    /// What can be read when it is done.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// What came of it, if it is done.
    pub fn result(&self) -> Option<Result<T, String>> {
        match self.result.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err("the thread that did it panicked".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use host::poll::{PollFlags, wait_for};

    use super::*;

    fn check(work: impl FnOnce() -> Result<u32, String> + Send + 'static, is_good: bool) {
        let job = Job::start("job", work).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let rung = wait_for(job.bell(), PollFlags::IN, Some(deadline)).unwrap();
        assert!(!rung.is_empty());
        assert_eq!(job.result().map(|result| result.is_ok()), Some(is_good));
    }

    #[test]
    fn the_bell_rings_whatever_comes_of_it() {
        check(|| Ok(7), true);
        check(|| Err("no".to_owned()), false);
        check(|| panic!("a thread that panics"), false);
    }
}

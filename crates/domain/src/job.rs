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
    /// An eventfd that becomes readable when it is done.
    completion: Arc<OwnedFd>,
}

/// Signals the eventfd when it is dropped.
struct Completion(Arc<OwnedFd>);

impl Drop for Completion {
    fn drop(&mut self) {
        // The counter has room for one.
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
        let completion = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (notifier, (sender, result)) = (Completion(Arc::clone(&completion)), mpsc::channel());
        thread::Builder::new().name(name.into()).spawn(move || {
            // Dropped when the result is there, or never will be.
            let _notifier = notifier;
            let sender = sender;
            let _ = sender.send(work());
        })?;
        Ok(Self { result, completion })
    }

    /// What can be read when it is done.
    pub fn completion(&self) -> BorrowedFd<'_> {
        self.completion.as_fd()
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
        let rung = wait_for(job.completion(), PollFlags::IN, Some(deadline)).unwrap();
        assert!(!rung.is_empty());
        assert_eq!(job.result().map(|result| result.is_ok()), Some(is_good));
    }

    #[test]
    fn it_completes_whatever_comes_of_it() {
        check(|| Ok(7), true);
        check(|| Err("no".to_owned()), false);
        check(|| panic!("a thread that panics"), false);
    }
}

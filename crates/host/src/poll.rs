//! Waiting for descriptors: poll(2) with a token for each, a deadline, and no interrupted calls.
//!
//! A loop that serves many descriptors fills a [`Poller`] on each turn: what it wants to hear about changes from turn
//! to turn, and so does the set of descriptors. A token is the caller's own name for what it has registered, so that
//! nothing has to be found by its position. [`wait_for`] is the same for one descriptor, without a `Poller`.
//!
//! ```
//! # use std::os::{fd::AsFd, unix::net::UnixStream};
//! use host::poll::{PollFlags, Poller};
//!
//! # fn main() -> std::io::Result<()> {
//! # let (line, mut other_end) = UnixStream::pair()?;
//! # std::io::Write::write_all(&mut other_end, b"x")?;
//! let mut poller = Poller::new();
//! poller.register("line", line.as_fd(), PollFlags::IN);
//! poller.wait(None)?;
//! for (token, flags) in poller.ready() {
//!     assert_eq!((token, flags), ("line", PollFlags::IN));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The rules:
//!
//! - A signal whose handler has run does not end a wait: the wait goes on with the time that is left. A loop that is to
//!   hear of signals registers a descriptor that tells of them (a signalfd, an eventfd that the handler writes).
//! - A deadline is a moment, not a span, so that a loop which waits several times for one thing is not late.
//! - [`PollFlags::HUP`], [`PollFlags::ERR`] and [`PollFlags::NVAL`] are reported whatever the interest is.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

pub use rustix::event::PollFlags;
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;

/// Descriptors to wait for, each with the token `T` that it is known by.
#[derive(Debug)]
pub struct Poller<'fd, T> {
    tokens: Vec<T>,
    /// As many as there are tokens, in the same order.
    descriptors: Vec<PollFd<'fd>>,
}

impl<T> Default for Poller<'_, T> {
    fn default() -> Self {
        Poller { tokens: Vec::new(), descriptors: Vec::new() }
    }
}

impl<'fd, T: Copy> Poller<'fd, T> {
    /// A poller without descriptors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Register a descriptor; `interest` is what [`Self::wait`] waits for. A descriptor may be registered more than
    /// once.
    pub fn register(&mut self, token: T, descriptor: BorrowedFd<'fd>, interest: PollFlags) {
        self.tokens.push(token);
        self.descriptors.push(PollFd::from_borrowed_fd(descriptor, interest));
    }

    /// Whether no descriptor is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Wait until a descriptor is ready or `deadline` has passed; without a deadline, for as long as it takes. Returns
    /// how many descriptors are ready: 0 says that the time is up. A deadline that has passed already only looks.
    ///
    /// # Errors
    ///
    /// poll(2) fails: the process may not have so many descriptors, or the kernel has no memory.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<usize> {
        wait_until(&mut self.descriptors, deadline)
    }

    /// Look which descriptors are ready now, without waiting. Returns how many are.
    ///
    /// # Errors
    ///
    /// As [`Self::wait`].
    pub fn look(&mut self) -> io::Result<usize> {
        look(&mut self.descriptors)
    }

    /// What the last [`Self::wait`] or [`Self::look`] found ready, in the order of registration.
    pub fn ready(&self) -> impl Iterator<Item = (T, PollFlags)> {
        let all = self.tokens.iter().zip(&self.descriptors);
        all.map(|(token, descriptor)| (*token, descriptor.revents()))
            .filter(|(_, flags)| !flags.is_empty())
    }
}

/// Wait for one descriptor, as [`Poller::wait`] does. Returns what it is ready for: nothing, if the time is up.
///
/// # Errors
///
/// As [`Poller::wait`].
pub fn wait_for(
    descriptor: impl AsFd,
    interest: PollFlags,
    deadline: Option<Instant>,
) -> io::Result<PollFlags> {
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor.as_fd(), interest)];
    wait_until(&mut descriptors, deadline)?;
    Ok(descriptors[0].revents())
}

/// What one descriptor is ready for now.
///
/// # Errors
///
/// As [`Poller::wait`].
pub fn look_at(descriptor: impl AsFd, interest: PollFlags) -> io::Result<PollFlags> {
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor.as_fd(), interest)];
    look(&mut descriptors)?;
    Ok(descriptors[0].revents())
}

fn wait_until(descriptors: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A span that is longer than the kernel can be told of has no end.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(descriptors, left.as_ref()) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

fn look(descriptors: &mut [PollFd<'_>]) -> io::Result<usize> {
    loop {
        match poll(descriptors, Some(&Timespec::default())) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    static SIGNALS: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn count(_: libc::c_int) {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    }

    fn within(span: Duration) -> Option<Instant> {
        Some(Instant::now() + span)
    }

    #[test]
    fn the_time_is_up() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut poller = Poller::new();
        poller.register((), ours.as_fd(), PollFlags::IN);
        let start = Instant::now();
        assert_eq!(poller.wait(within(Duration::from_millis(30))).unwrap(), 0);
        assert!(start.elapsed() >= Duration::from_millis(30));
        assert_eq!(poller.ready().count(), 0);
        assert_eq!(poller.wait(Some(start)).unwrap(), 0, "a deadline in the past only looks");
        assert_eq!(poller.look().unwrap(), 0);
        let span = within(Duration::from_millis(1));
        assert!(wait_for(&ours, PollFlags::IN, span).unwrap().is_empty());
        assert!(look_at(&ours, PollFlags::IN).unwrap().is_empty());
    }

    #[test]
    fn a_poller_without_descriptors_waits_for_its_deadline() {
        let mut poller = Poller::<()>::new();
        assert!(poller.is_empty());
        assert_eq!(poller.wait(within(Duration::from_millis(1))).unwrap(), 0);
    }

    #[test]
    fn what_is_ready_comes_in_the_order_of_registration() {
        let pairs: [_; 3] = std::array::from_fn(|_| UnixStream::pair().unwrap());
        (&pairs[2].1).write_all(b"x").unwrap();
        (&pairs[0].1).write_all(b"x").unwrap();
        let mut poller = Poller::new();
        for (number, (ours, _)) in pairs.iter().enumerate().rev() {
            poller.register(number, ours.as_fd(), PollFlags::IN);
        }
        poller.register(7, pairs[1].0.as_fd(), PollFlags::OUT);
        assert_eq!(poller.wait(None).unwrap(), 3);
        let ready: Vec<_> = poller.ready().collect();
        assert_eq!(ready, [(2, PollFlags::IN), (0, PollFlags::IN), (7, PollFlags::OUT)]);
        assert_eq!(poller.look().unwrap(), 3);
    }

    #[test]
    fn the_other_end_hangs_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut poller = Poller::new();
        poller.register("nothing wanted", ours.as_fd(), PollFlags::empty());
        assert_eq!(poller.wait(None).unwrap(), 1);
        let ready: Vec<_> = poller.ready().collect();
        assert_eq!(ready, [("nothing wanted", PollFlags::HUP)]);
        assert!(wait_for(&ours, PollFlags::IN, None).unwrap().contains(PollFlags::HUP));
    }

    #[test]
    fn a_signal_does_not_end_a_wait() {
        // SAFETY: the handler only adds to an atomic number; nobody else here uses this signal.
        unsafe { libc::signal(libc::SIGUSR2, count as *const () as libc::sighandler_t) };
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // SAFETY: the thread that this names waits below for the one that signals it.
        let waiting = unsafe { libc::pthread_self() };
        let signals = std::thread::spawn(move || {
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(10));
                // SAFETY: as above, the thread is still there.
                unsafe { libc::pthread_kill(waiting, libc::SIGUSR2) };
            }
            std::thread::sleep(Duration::from_millis(10));
            theirs.write_all(b"x").unwrap();
            theirs
        });
        let start = Instant::now();
        let flags = wait_for(&ours, PollFlags::IN, within(Duration::from_secs(60))).unwrap();
        assert_eq!(flags, PollFlags::IN);
        assert!(start.elapsed() >= Duration::from_millis(40), "a signal has ended the wait");
        signals.join().unwrap();
        assert_eq!(SIGNALS.load(Ordering::SeqCst), 3);
    }
}

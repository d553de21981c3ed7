//! Waits for descriptors: poll(2) with a token for each, a deadline, and no interrupted calls.
//!
//! It has the shape and the rules of `host::poll`, and is init's own: init does not link the crate `host`, which is
//! about a machine's process and would bring the mappings of guest memory into every guest.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};

/// Descriptors to wait for, each with the token `T` that it is known by.
pub struct Poller<'fd, T> {
    tokens: Vec<T>,
    /// As many as there are tokens, in the same order.
    descriptors: Vec<PollFd<'fd>>,
}

impl<'fd, T: Copy> Poller<'fd, T> {
    /// A poller without descriptors.
    pub fn new() -> Self {
        Poller { tokens: Vec::new(), descriptors: Vec::new() }
    }

    /// Registers a descriptor; `interest` is what [`Self::wait`] waits for.
    pub fn register(&mut self, token: T, descriptor: &'fd impl AsFd, interest: PollFlags) {
        self.tokens.push(token);
        self.descriptors.push(PollFd::from_borrowed_fd(descriptor.as_fd(), interest));
    }

    /// Waits until a descriptor is ready or `deadline` has passed; without a deadline, for as long as it takes.
    /// Returns the tokens of the descriptors that are ready: none says that the time is up.
    pub fn wait(mut self, deadline: Option<Instant>) -> Result<Vec<T>> {
        wait_until(&mut self.descriptors, deadline)?;
        let all = self.tokens.into_iter().zip(&self.descriptors);
        let ready = all.filter(|(_, descriptor)| !descriptor.revents().is_empty());
        Ok(ready.map(|(token, _)| token).collect())
    }
}

/// Waits for one descriptor, as [`Poller::wait`] does; `false` if the time is up.
pub fn wait_for(
    descriptor: BorrowedFd<'_>,
    interest: PollFlags,
    deadline: Option<Instant>,
) -> Result<bool> {
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor, interest)];
    Ok(wait_until(&mut descriptors, deadline)? > 0)
}

fn wait_until(descriptors: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<usize> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A span that is longer than the kernel can be told of has no end.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(descriptors, left.as_ref()) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_ready_comes_in_the_order_of_registration() {
        let pairs: [_; 3] = std::array::from_fn(|_| UnixStream::pair().unwrap());
        (&pairs[2].1).write_all(b"x").unwrap();
        (&pairs[0].1).write_all(b"x").unwrap();
        let mut poller = Poller::new();
        for (number, (ours, _)) in pairs.iter().enumerate().rev() {
            poller.register(number, ours, PollFlags::IN);
        }
        assert_eq!(poller.wait(None).unwrap(), [2, 0]);
    }

    #[test]
    fn the_time_is_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let start = Instant::now();
        let deadline = Some(start + Duration::from_millis(30));
        let mut poller = Poller::new();
        poller.register((), &ours, PollFlags::IN);
        assert_eq!(poller.wait(deadline).unwrap(), []);
        assert!(start.elapsed() >= Duration::from_millis(30));
        let wait = |deadline| wait_for(ours.as_fd(), PollFlags::IN, deadline).unwrap();
        assert!(!wait(Some(start)), "a deadline in the past only looks");
        drop(theirs);
        assert!(wait(None), "the other end has hung up");
    }
}

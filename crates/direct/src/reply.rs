//! What the zygote and new helpers say: three descriptors, or why not.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use crate::error::{Error, host};
use crate::notify;

/// How long a helper may take to start.
const START_LIMIT_SECONDS: u64 = 10;
const START_LIMIT: Duration = Duration::from_secs(START_LIMIT_SECONDS);

/// Room for a message of the zygote.
#[repr(C, align(8))]
#[derive(Default)]
pub(crate) struct Reply {
    record: [i64; 2],
    /// The header, and room for three descriptors.
    control: [u64; 4],
}

pub(crate) enum Received {
    /// In the order in which they were sent.
    Descriptors([OwnedFd; 3]),
    Failure {
        step: u64,
        result: i64,
    },
}

impl Reply {
    /// Wait for the message.
    pub(crate) fn receive(&mut self, socket: i32) -> Result<Received, Error> {
        if notify::poll(socket, Some(START_LIMIT)).is_err() {
            return Err(Error::Silent { seconds: START_LIMIT_SECONDS });
        }
        let mut vector = libc::iovec { iov_base: self.record.as_mut_ptr().cast(), iov_len: 16 };
        // SAFETY: the structure is made of integers and pointers that may be null.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = self.control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&self.control);
        // SAFETY: all the pointers are to memory of ours of the stated sizes.
        let bytes = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if bytes < 0 {
            return Err(host("hear from the zygote"));
        }
        let descriptors = self.descriptors();
        if message.msg_flags & libc::MSG_CTRUNC != 0 {
            // What came of them is closed, whereupon the helper ends.
            let source = io::Error::from_raw_os_error(libc::EMFILE);
            return Err(Error::Host {
                action: "open a helper's descriptors (see ulimit -n)",
                source,
            });
        }
        if bytes == 1
            && let Ok(descriptors) = <[OwnedFd; 3]>::try_from(descriptors)
        {
            return Ok(Received::Descriptors(descriptors));
        }
        if bytes == 16 {
            let [step, result] = self.record;
            return Ok(Received::Failure { step: step.cast_unsigned(), result });
        }
        let source = io::ErrorKind::BrokenPipe.into();
        Err(Error::Host { action: "keep the zygote alive", source })
    }

    /// The descriptors that came with the message: at most three, as many as there is room for.
    fn descriptors(&self) -> Vec<OwnedFd> {
        let header = (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64;
        let [length, kind, first, second, ..] = self.control;
        if kind != header {
            return Vec::new();
        }
        let numbers = [first as i32, (first >> 32) as i32, second as i32];
        let count = length.saturating_sub(16) / 4;
        // SAFETY: the kernel has just made these descriptors for this process.
        let own = |&number: &i32| unsafe { OwnedFd::from_raw_fd(number) };
        numbers.iter().take(count as usize).map(own).collect()
    }
}

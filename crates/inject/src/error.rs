//! What can go wrong.

use std::io;

/// Why calls could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process ended meanwhile, by its own doing or by a `SIGKILL`.
    #[error("task {0} has ended meanwhile")]
    Gone(u32),
    /// It has not come back in time.
    #[error(
        "task {0} does not stop; it may wait for a device or a file system that does not answer"
    )]
    Stuck(u32),
    /// It has stopped somewhere else.
    #[error("task {task} has stopped unexpectedly, by signal {signal}")]
    Strayed {
        /// The task.
        task: u32,
        /// The signal, or the number of the event.
        signal: u32,
    },
    /// There is no `syscall` instruction in what the process may execute.
    #[error("task {0} has no executable memory with a system call in it")]
    NoGate(u32),
    /// All the signals of [`Trap`](crate::Trap) are ignored or waiting.
    #[error("task {0} ignores SIGTRAP, SIGILL and SIGSEGV, so nothing can be asked of it")]
    NoTrap(u32),
    /// The kernel refused it the pages.
    #[error("task {task} cannot map the pages for its calls: {source}")]
    NoArea {
        /// The task.
        task: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The script is longer than the area.
    #[error("a script of system calls is too long")]
    TooLong,
    /// A call of ptrace, or of /proc, failed.
    #[error("task {task} cannot be traced: {source}")]
    Trace {
        /// The task.
        task: u32,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// An error of a call about `task`; most say that it is gone.
    pub(crate) fn trace(task: u32) -> impl Fn(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone(task),
            _ => Self::Trace { task, source },
        }
    }
}

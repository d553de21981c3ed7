//! Errors that keep the file server from starting.

use std::io;

/// Why the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call.
    #[error("file server: cannot {action}: {error}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// The answer.
        error: io::Error,
    },
    /// What it was told.
    #[error("file server: what it was told makes no sense; it is started by biv itself")]
    Introduction,
    /// The guest's memory.
    #[error("file server: {0}")]
    Memory(#[from] host::Error),
    /// Landlock.
    #[error("file server: cannot keep to the shared directories: {0}")]
    Landlock(#[from] ::landlock::RulesetError),
    /// The filter.
    #[error("file server: {0}")]
    Confine(#[from] host::confine::Error),
}

/// What `action` failed with.
pub fn failed(action: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |errno| Error::Host { action, error: errno.into() }
}

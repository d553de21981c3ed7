//! What can go wrong.

use std::io;

/// Why processes could not be frozen, written down or made again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process has something that cannot be written down.
    #[error("process {pid} cannot be checkpointed: it {what}")]
    Unsupported {
        /// The process, by the host's number.
        pid: u32,
        /// What it has or does, as the end of a sentence.
        what: String,
    },
    /// A task does not stop.
    #[error("task {task} does not stop: {why}")]
    Stuck {
        /// The task, by the host's number.
        task: u32,
        /// What it is doing.
        why: String,
    },
    /// The tree makes processes faster than they can be stopped.
    #[error("the processes multiply faster than they can be stopped")]
    Outrun,
    /// There is nothing to freeze.
    #[error("process {0} has ended")]
    Gone(u32),
    /// A system call that a process made for us failed.
    #[error("process {pid} cannot {what}: {source}")]
    Call {
        /// The process: by the image's number at restart, by the host's else.
        pid: u32,
        /// What it was to do.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A call of ours failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What we were to do.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The tracing failed.
    #[error(transparent)]
    Inject(#[from] inject::Error),
    /// The image is no image, or is damaged, or says what cannot be.
    #[error("the image cannot be used: {0}")]
    Image(String),
    /// The process that reads the image does not do what it is to.
    #[error("the process that reads the image {0}")]
    Reader(&'static str),
    /// The image needs what this host has not.
    #[error("the image cannot go on here: {0}")]
    Host(String),
}

impl Error {
    /// For what we were to do.
    pub(crate) fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |error| Self::Io { what: what.into(), source: error.into() }
    }

    /// For what a process has.
    pub(crate) fn unsupported(pid: u32, what: impl Into<String>) -> Self {
        Self::Unsupported { pid, what: what.into() }
    }
}

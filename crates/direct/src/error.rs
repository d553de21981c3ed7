//! The errors of helpers: why there are none, or not another one.

use std::io;

/// Why something could not be done. Every one of them means: translate instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host lacks something.
    #[error("direct execution needs {what}, which this host does not have")]
    Missing {
        /// What it lacks.
        what: &'static str,
    },
    /// Linux refused something.
    #[error("cannot {action} for direct execution: {source}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A helper did not answer.
    #[error("a helper process did not start within {seconds} s")]
    Silent {
        /// How long the domain waited.
        seconds: u64,
    },
    /// An earlier failure has left the helpers in disorder.
    #[error("helper processes have failed before")]
    Broken,
    /// All slots are taken.
    #[error("there are already {count} address spaces with helpers; drop one first")]
    Full {
        /// How many.
        count: usize,
    },
    /// A range is not one that can be mapped.
    #[error("linear addresses {linear:#x} + {length:#x} {complaint}; translate this process")]
    Range {
        /// First linear address.
        linear: u64,
        /// Bytes.
        length: u64,
        /// What is wrong with it.
        complaint: &'static str,
    },
    /// The helper could not carry out an order: what is mapped is not known any more.
    #[error("a helper could not change its mappings: {source}; unmap everything and start over")]
    Order {
        /// The operating system's answer.
        source: io::Error,
    },
    /// The helper is dead.
    #[error("the helper process has died; make another space")]
    Died,
}

/// The last call's error.
pub(crate) fn host(action: &'static str) -> Error {
    Error::Host { action, source: io::Error::last_os_error() }
}

//! Why there is no pod.

use std::io;

use rustix::io::Errno;

/// Why there is no pod, for whoever wants one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that the host did not do.
    #[error("{what}: {error}")]
    Host {
        /// What was to be done, as the beginning of a sentence.
        what: String,
        /// What is wrong.
        error: io::Error,
    },
    /// The host forbids namespaces.
    #[error(
        "this host does not let an ordinary process have user namespaces ({0}); `biv doctor` says \
         what forbids it"
    )]
    Forbidden(Errno),
    /// The keeper has gone, or does not keep to the protocol.
    #[error("the keeper of the pod has gone")]
    NoKeeper,
    /// What the keeper wants.
    #[error(transparent)]
    Setup(#[from] pod_protocol::Error),
    /// The conversation with the keeper.
    #[error(transparent)]
    Service(#[from] service::error::Error),
}

/// Says of a failure what was to be done.
pub trait Doing<T> {
    /// See above.
    fn doing(self, what: impl Into<String>) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T, Error> {
        self.map_err(|error| Error::Host { what: what.into(), error: error.into() })
    }
}

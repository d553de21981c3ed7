//! Why the machines of a compose file were not started, or not removed.

use std::io;
use std::path::PathBuf;

use api::{networks, registry};
use spec::Name;

/// Where a compose file is looked for, in this order.
pub const FILES: [&str; 4] =
    ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

/// See above.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no file.
    #[error("there is no compose file here ({}); -f names another", FILES.join(", "))]
    NoFile,
    /// It cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    /// It is none.
    #[error("{0}: {1}")]
    File(PathBuf, #[source] compose::Error),
    /// Nobody has said how it is called.
    #[error("{0:?} is no name for a project; give one with -p")]
    NoName(String),
    /// It is not among the services.
    #[error("there is no service {0} in {1}")]
    NoService(Name, PathBuf),
    /// The name of a machine is taken.
    #[error(
        "machine {0} is there already, and not of project {1}; remove it, or choose another name \
         for the project with -p"
    )]
    Foreign(Name, Name),
    /// The registry.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// Networks.
    #[error(transparent)]
    Network(#[from] networks::Error),
    /// This program.
    #[error("cannot start biv: {0}")]
    Program(#[source] io::Error),
    /// It has said why.
    #[error("service {0} has not started")]
    Start(Name),
    /// What another waits for will not be.
    #[error("service {0} has ended, and was to be healthy first")]
    Ended(Name),
    /// The same.
    #[error("service {0} is not healthy: its test {1}")]
    Unhealthy(Name, String),
    /// The same.
    #[error("service {0} has ended with status {1}, and was to succeed first")]
    Failed(Name, u8),
    /// It cannot be waited for.
    #[error("cannot wait for a machine: {0}")]
    Wait(#[source] io::Error),
    /// A machine does not go away, and has said why.
    #[error("machine {0} is still there")]
    Remove(Name),
    /// Standard output.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

//! What a pod is to be.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use api::pod::Network;
use serde::{Deserialize, Serialize};
use spec::Name;

use crate::member::Join;

/// What a pod is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodSpec {
    /// Its name; none: one is made.
    pub name: Option<Name>,
    /// The command and its arguments; none: a shell.
    pub args: Vec<OsString>,
    /// Variables of its environment, each `NAME=VALUE`, besides those that it has in any case.
    pub env: Vec<OsString>,
    /// Its working directory; none: the current one if the pod shares it, otherwise the root.
    pub directory: Option<PathBuf>,
    /// The host name; none: the pod's name.
    pub hostname: Option<String>,
    /// The directory that is the root; none: the host's root, as far as a pod sees it.
    pub root: Option<PathBuf>,
    /// The pod writes to that directory.
    pub is_writable: bool,
    /// The command has a terminal.
    pub terminal: bool,
    /// Its input stays open although nobody is there.
    pub interactive: bool,
    /// It goes on by itself.
    pub detached: bool,
    /// Nothing of it is kept when it has ended.
    pub remove: bool,
    /// Its network; none: a loopback interface only.
    pub network: Option<Network>,
    /// The place that it wants among the pods of a network.
    pub join: Option<Join>,
    /// The image that it is to go on from.
    pub image: Option<PathBuf>,
    /// Where images may be that this one goes on from, besides its directory.
    pub parents: Vec<PathBuf>,
    /// Its processes stay frozen then.
    pub frozen: bool,
    /// The process with which it ends as long as they do.
    pub guard: Option<u32>,
    /// How long it may run.
    pub timeout: Option<Duration>,
}

//! How a domain or a pod ended, as its record says.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The end of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// The exit status of `biv run`.
    pub status: u8,
    /// What went wrong, if `biv` failed.
    pub error: Option<String>,
    /// Why the machine ended, if its command did not: a panic, with what the guest said last, or the
    /// time limit.
    pub reason: Option<String>,
}

impl Ended {
    /// What is to be said of an end that did not come by itself.
    #[must_use]
    pub fn explanation(&self) -> Option<&str> {
        self.error.as_deref().or(self.reason.as_deref())
    }
}

/// What has become of one that does not live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It has ended, with this exit status of `biv run`.
    Ended(u8),
    /// It has failed.
    Failed,
    /// Its process was killed, and could not say anything.
    Killed,
}

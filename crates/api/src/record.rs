//! The record of a domain in its directory. The domain's process writes it when it starts and when
//! it ends.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use spec::{Name, Spec};
use utoipa::ToSchema;

use super::ended::Ended;
use super::kept::{Kept, Kind};

/// The version of the record that this code writes; it reads no other.
pub const VERSION: u32 = 4;

/// What is known of a domain from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The version of this record.
    pub version: u32,
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// Its process.
    pub pid: u32,
    /// When it was started, in milliseconds since 1970.
    pub created: u64,
    /// Whether it runs by itself (`biv run --detach`).
    pub detached: bool,
    /// Whether what is here stays when it has ended, until `biv rm`.
    pub kept: bool,
    /// The guest's command and its arguments; of a machine without an init of ours, its kernel.
    pub command: Vec<String>,
    /// Whether the guest has an init of ours, so that commands can be run in it.
    pub has_init: bool,
    /// Whether its command has a terminal.
    pub has_terminal: bool,
    /// Bytes of memory.
    pub memory: u64,
    /// Processors.
    pub processors: u8,
    /// Where its kernel came from.
    pub kernel: String,
    /// The machine's description, as it was started or went on (docs/spec.md).
    #[schema(value_type = Object)]
    pub spec: Box<Spec>,
    /// How it ended, if it has and could say so.
    pub ending: Option<Ended>,
}

/// Milliseconds since 1970.
#[must_use]
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Kept for Record {
    const KIND: Kind = Kind::Domain;
    const VERSION: u32 = VERSION;

    fn version(&self) -> u32 {
        self.version
    }

    fn set_name(&mut self, name: Name) {
        self.name = name;
    }

    fn is_kept(&self) -> bool {
        self.kept
    }

    fn ending(&self) -> Option<&Ended> {
        self.ending.as_ref()
    }
}

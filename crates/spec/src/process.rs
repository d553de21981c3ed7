//! The command of a machine.

use std::ffi::OsString;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Other, is_default, text};

/// A command, in the guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Process {
    /// The program and its arguments [default: a shell, or nothing in a machine that has an initial RAM disk or a
    /// kernel that is an ELF file, and no root].
    #[serde(with = "text::list", skip_serializing_if = "is_default")]
    #[schemars(with = "Vec<String>")]
    pub args: Vec<OsString>,
    /// What its environment has besides, or instead of what every command has: NAME=VALUE.
    #[serde(with = "text::list", skip_serializing_if = "is_default")]
    #[schemars(with = "Vec<String>")]
    pub env: Vec<OsString>,
    /// Where it starts [default: / or, in a machine that looks like the host, the directory in which that is started].
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub directory: Option<PathBuf>,
    /// Whom it runs as, USER or USER:GROUP, by name or number [default: root or, in a machine that looks like the host,
    /// who starts that].
    #[serde(skip_serializing_if = "is_default")]
    pub user: Option<String>,
    /// It has a terminal of its own [default: a shell on a terminal has].
    #[serde(skip_serializing_if = "is_default")]
    pub terminal: bool,
    /// Its standard input stays open, though nobody types, if the machine runs by itself.
    #[serde(skip_serializing_if = "is_default")]
    pub interactive: bool,
    /// What this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

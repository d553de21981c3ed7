//! The command of a machine.

use std::ffi::OsString;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Other, is_default, text};

/// The numbers of Linux's signals (signal(7)).
pub const SIGNALS: std::ops::RangeInclusive<u8> = 1..=64;

/// A command, in the guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Process {
    /// The program and its arguments [default: what its image says; a shell, or nothing in a machine that has an
    /// initial RAM disk or a kernel that is an ELF file, and no root].
    #[serde(with = "text::list", skip_serializing_if = "is_default")]
    #[schemars(with = "Vec<String>")]
    pub args: Vec<OsString>,
    /// What every command begins with, before its arguments [default: what its image says, if that has layers; an empty
    /// list: nothing].
    #[serde(with = "text::list_option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<Vec<String>>")]
    pub entrypoint: Option<Vec<OsString>>,
    /// Environment variables, NAME=VALUE, which are added to those that every command has, or replace them.
    #[serde(with = "text::list", skip_serializing_if = "is_default")]
    #[schemars(with = "Vec<String>")]
    pub env: Vec<OsString>,
    /// Its working directory [default: / or, in a machine that looks like the host, the directory in which that is
    /// started].
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub directory: Option<PathBuf>,
    /// Its user, USER or USER:GROUP, by name or number [default: root or, in a machine that looks like the host,
    /// the user who starts that].
    #[serde(skip_serializing_if = "is_default")]
    pub user: Option<String>,
    /// It has a terminal of its own [default: true for a shell that is started on a terminal].
    #[serde(skip_serializing_if = "is_default")]
    pub terminal: bool,
    /// Its standard input stays open, without a client that types, if the machine is detached.
    #[serde(skip_serializing_if = "is_default")]
    pub interactive: bool,
    /// The number of the signal by which the command is asked to end, 1 to 64 [default: what its image says; SIGTERM to
    /// all commands of the machine].
    #[serde(skip_serializing_if = "is_default")]
    pub stop_signal: Option<u8>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

impl Process {
    /// Whether it says how a command runs, and not only which.
    pub(crate) fn says_how(&self) -> bool {
        self.user.is_some()
            || self.directory.is_some()
            || self.entrypoint.is_some()
            || self.stop_signal.is_some()
            || !self.env.is_empty()
    }

    /// What is wrong with it, if anything.
    pub(crate) fn complaint(&self) -> Option<&'static str> {
        let is_wrong = self.stop_signal.is_some_and(|number| !SIGNALS.contains(&number));
        is_wrong.then_some("there is no signal of that number (process.stop_signal)")
    }
}

//! How the engine executes a machine's code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Other, is_default};

/// The engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Engine {
    /// How user code is executed.
    #[serde(skip_serializing_if = "is_default")]
    pub user_execution: UserExecution,
    /// The interpreter executes every instruction.
    #[serde(skip_serializing_if = "is_default")]
    pub interpret: bool,
    /// Techniques that are left out (docs/measuring.md).
    #[serde(skip_serializing_if = "is_default")]
    pub without: Vec<String>,
    /// The machine's process may make any system call.
    #[serde(skip_serializing_if = "is_default")]
    pub no_seccomp: bool,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// Ways to execute user code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UserExecution {
    /// Translated, always.
    Translate,
    /// Natively, in helper processes; an error where that is impossible.
    Direct,
    /// As suits each thread: natively if it computes, translated if it often calls its kernel.
    #[default]
    Auto,
}

//! The kernel of a machine, and how it boots.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Other, is_default, text};

/// A kernel, and what it is told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Boot {
    /// A bzImage, an ELF file with a PVH note or a Multiboot header, or the version of a kernel that `biv kernel` has
    /// fetched [default: Debian's for cloud machines].
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub kernel: Option<PathBuf>,
    /// The initial RAM disk; for a Multiboot kernel its modules, as "FILE ARG...,FILE ARG...".
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub initrd: Option<PathBuf>,
    /// What is added to the kernel's command line.
    #[serde(skip_serializing_if = "is_default")]
    pub append: Option<String>,
    /// It boots, though it could go on from what an earlier machine of its kind has left in the cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cold: bool,
    /// It ends when the guest reboots.
    #[serde(skip_serializing_if = "is_default")]
    pub no_reboot: bool,
    /// What is used of the default guest is fetched again, for a newer one.
    #[serde(skip_serializing_if = "is_default")]
    pub refresh: bool,
    /// What this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

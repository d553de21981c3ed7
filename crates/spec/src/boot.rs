//! The kernel of a machine, and how it boots.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Other, is_default, text};

/// A kernel, its initrd and its command line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Boot {
    /// A bzImage, an ELF file with a PVH note or a Multiboot header, or the version of a kernel that `biv kernel` has
    /// downloaded [default: Debian's for cloud machines].
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub kernel: Option<PathBuf>,
    /// The initial RAM disk; for a Multiboot kernel its modules, as "FILE ARG...,FILE ARG...".
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub initrd: Option<PathBuf>,
    /// The directory with the kernel's modules, `lib/modules/RELEASE` or the one above [default: those of its package].
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub modules: Option<PathBuf>,
    /// Parameters that are added to the kernel's command line.
    #[serde(skip_serializing_if = "is_default")]
    pub append: Option<String>,
    /// It boots, although the cache has a snapshot of a machine of its kind.
    #[serde(skip_serializing_if = "is_default")]
    pub cold: bool,
    /// It ends when the guest reboots.
    #[serde(skip_serializing_if = "is_default")]
    pub no_reboot: bool,
    /// The default guest's parts that it uses are downloaded again, for a newer version.
    #[serde(skip_serializing_if = "is_default")]
    pub refresh: bool,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

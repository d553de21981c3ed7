//! The root file system of a guest.

use std::ffi::OsString;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Disk, Error, Other, disk, is_default, text};

/// A root file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Root {
    /// The host's own.
    Host(HostRoot),
    /// A directory of the host.
    Directory(Directory),
    /// The image of that name, which `biv image build` has made.
    Image(String),
    /// A file system on a disk.
    Disk(DiskRoot),
    /// Nothing but busybox, in memory.
    Busybox,
}

/// A machine that looks like the host, with the rights of the user who has started it. The guest's writes stay in
/// its memory, except those to the directory in which it is started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostRoot {
    /// It may write to that directory even if that is the user's home directory, or contains it.
    #[serde(skip_serializing_if = "is_default")]
    pub here: bool,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// A directory as a root.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Directory {
    /// Its path.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// The guest's writes go to the directory, instead of staying in its memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub writable: bool,
    /// The guest may give files there set-user-ID and set-group-ID bits and `security.*` attributes, which hold for
    /// the users of the host as well.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suid: bool,
    /// Its files belong to whom the guest gives them: to subordinate users of the host's (subuid(5)), or else in
    /// attributes of theirs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub owners: bool,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// A disk that has the root file system; it is the guest's first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskRoot {
    /// The number of the partition [default: the whole disk].
    #[serde(default, skip_serializing_if = "is_default")]
    pub partition: Option<u8>,
    /// Its path.
    #[serde(flatten)]
    pub disk: Disk,
}

impl Default for Root {
    fn default() -> Self {
        Self::Host(HostRoot::default())
    }
}

impl Root {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let reason = match self {
            Self::Directory(Directory { writable: false, suid: true, .. }) => {
                "bits for files that cannot be written (root.directory.suid without writable)"
            }
            Self::Disk(DiskRoot { partition: Some(0), .. }) => {
                "partitions have numbers from 1 to 255"
            }
            _ => return Ok(()),
        };
        Err(Error::Contradiction(reason.to_owned()))
    }

    pub(crate) fn other(&self) -> Option<&Other> {
        match self {
            Self::Host(root) => Some(&root.other),
            Self::Directory(root) => Some(&root.other),
            Self::Disk(root) => Some(&root.disk.other),
            Self::Image(_) | Self::Busybox => None,
        }
    }
}

impl DiskRoot {
    /// Reads what [`Disk::parse_vbd`] reads, with `,part=N`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: OsString) -> Result<Self, String> {
        let (disk, rest) = disk::parse(&text)?;
        let mut root = Self { disk, partition: None };
        for part in rest {
            let Some(number) = part.strip_prefix("part=") else {
                let known = part.starts_with("extent=");
                let refused = || disk::unknown(&part, ", part=N, extent=START+LENGTH");
                root.disk
                    .add_extent(&part)
                    .map_err(|error| if known { error } else { refused() })?;
                continue;
            };
            let number = number.parse().ok().filter(|number| *number > 0);
            root.partition = Some(number.ok_or("partitions have numbers from 1 to 255")?);
        }
        Ok(root)
    }

    /// The word that is read as this.
    #[must_use]
    pub fn word(&self) -> OsString {
        let mut word = self.disk.word();
        self.partition.iter().for_each(|number| word.push(format!(",part={number}")));
        word
    }

    /// What it is called in the guest, whose first disk it is.
    #[must_use]
    pub fn device(&self) -> String {
        self.partition.map_or("vda".to_owned(), |number| format!("vda{number}"))
    }
}

//! The root file system of a guest.

use std::ffi::OsString;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Disk, Error, Other, disk, is_default, text};

/// A root.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Root {
    /// The host's.
    Host(HostRoot),
    /// A directory of the host's.
    Directory(Directory),
    /// What `biv image build` has made under that name.
    Image(String),
    /// A file system on a disk.
    Disk(DiskRoot),
    /// Nothing but busybox, in memory.
    Busybox,
}

/// A machine that looks like the host, to who has started it: what it writes stays in its memory, but for the
/// directory in which it is started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostRoot {
    /// It may write to that directory also where that is the user's home directory, or has it in it.
    #[serde(skip_serializing_if = "is_default")]
    pub here: bool,
    /// What this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// A directory as a root.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Directory {
    /// Which.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// What the guest writes is written there, instead of staying in its memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub writable: bool,
    /// The guest may give files there set-user-ID and set-group-ID bits and `security.*` attributes, which hold for
    /// the users of the host as well.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suid: bool,
    /// What this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// A disk that has the root file system; it is the guest's first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskRoot {
    /// The number of the partition [default: it is the whole disk].
    #[serde(default, skip_serializing_if = "is_default")]
    pub partition: Option<u8>,
    /// Which.
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
    /// Reads what [`Disk::parse`] reads, with `,part=N`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: OsString) -> Result<Self, String> {
        let (disk, rest) = disk::parse(&text)?;
        let mut root = Self { disk, partition: None };
        for part in rest {
            let number =
                part.strip_prefix("part=").ok_or_else(|| disk::unknown(&part, ", part=N"))?;
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

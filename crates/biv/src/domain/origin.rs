//! What is known of a domain when it is started, for those who take snapshots of it: what kind of machine it is
//! as far as its state does not tell, and what of the host it was given.
//!
//! It is in a file of the domain's directory, written before the machine's process is confined and closed then.
//! A guest that owns this process has no way to open the file, or to put another in its place: it names no files
//! ([`host::confine`]). `biv snapshot` takes it from there, not from the domain.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use rustix::fs::fstat;
use serde::{Deserialize, Serialize};

use super::files;

/// The longest origin that is read, in bytes.
pub const ORIGIN_MAX_BYTES: u64 = 4 << 20;

/// See above.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// What kind of machine it is; this grants nothing.
    pub machine: Kind,
    /// What runs in it, as it is shown to people.
    pub command: Vec<String>,
    /// What it was given of the host, as options of `biv restore`, in bytes
    /// ([`crate::run::surroundings::Surroundings`]).
    surroundings: Vec<Vec<u8>>,
}

/// What a machine's state does not tell of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// It has a sandbox's limits (`--sandbox`).
    pub sandbox: bool,
    /// It has an entropy device.
    pub entropy: bool,
    /// It has a port by which it ends.
    pub debug_exit: bool,
    /// Its command's input stays open though nobody types.
    pub interactive: bool,
    /// Its command has a terminal.
    pub terminal: bool,
    /// It has no init of ours, and its streams are on a virtio console.
    pub virtio_console: bool,
    /// Its root is an image on a disk: this one ([`erofs::Identity`]).
    #[serde(default)]
    pub image_disk: Option<[u8; 16]>,
}

impl Origin {
    /// Of such a machine, in which that runs, and which has these options of `biv restore`.
    #[must_use]
    pub fn new(machine: Kind, command: Vec<String>, options: Vec<OsString>) -> Self {
        let surroundings = options.into_iter().map(OsStringExt::into_vec).collect();
        Self { machine, command, surroundings }
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> Vec<OsString> {
        self.surroundings.iter().cloned().map(OsString::from_vec).collect()
    }

    /// As text (JSON).
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The inverse of [`Self::text`]; none for anything else.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let is_short = text.len() as u64 <= ORIGIN_MAX_BYTES;
        serde_json::from_slice(text).ok().filter(|_| is_short)
    }

    /// Writes it into a domain's directory.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn record(&self, directory: impl AsFd) -> io::Result<()> {
        File::from(files::create(directory, files::ORIGIN)?).write_all(&self.text())
    }

    /// What was written into a domain's directory.
    ///
    /// # Errors
    ///
    /// There is nothing, or nothing of ours.
    pub fn of_domain(directory: impl AsFd) -> io::Result<Self> {
        let file = File::from(files::open(directory, files::ORIGIN)?);
        if fstat(&file)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("the record of what the domain was given is another's"));
        }
        let mut text = Vec::new();
        file.take(ORIGIN_MAX_BYTES + 1).read_to_end(&mut text)?;
        let wrong = "the record of what the domain was given makes no sense";
        Self::parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, wrong))
    }
}

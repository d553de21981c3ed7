//! The origin of a snapshot: a domain's description with the host resources that the domain was
//! given.
//!
//! `biv run` writes it to a file in the domain's directory before the machine's process is
//! confined, and then closes the file. A guest that owns this process can neither open the file nor
//! replace it, because the process may not name files (`host::confine`). `biv snapshot` reads the
//! file itself; it does not ask the domain.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::fstat;
use serde::{Deserialize, Serialize};
use spec::{Boot, Engine, Spec, Watch};

use super::files;

/// The longest origin that is read, in bytes.
pub const ORIGIN_MAX_BYTES: u64 = 4 << 20;

/// See above.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The machine, with what it was given of the host by absolute paths, and without what is for watching it.
    pub spec: Spec,
    /// What runs in it, as it is shown to people.
    pub command: Vec<String>,
    /// Its root is an image on a disk: this one (`erofs::Identity`).
    #[serde(default)]
    pub image_disk: Option<[u8; 16]>,
    /// The directory with its kernel's modules.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "spec::text::option")]
    pub modules: Option<PathBuf>,
}

impl Origin {
    /// As text (JSON).
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The inverse of [`Self::text`]; none for anything else.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let is_short = text.len() as u64 <= ORIGIN_MAX_BYTES;
        let origin: Self = serde_json::from_slice(text).ok().filter(|_| is_short)?;
        let spec = &origin.spec;
        let makes_sense = spec.version == spec::VERSION && spec.check().is_ok();
        // What is said of a machine beside what it has of the host is not recorded, and not taken from a file.
        let (append, init) = (spec.boot.append.clone(), spec.boot.init.clone());
        let boot = Boot { append, init, ..Boot::default() };
        let is_recorded = (&spec.boot, &spec.watch, &spec.engine)
            == (&boot, &Watch::default(), &Engine::default());
        (makes_sense && is_recorded).then_some(origin)
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
            return Err(io::Error::other(
                "the record of the domain's host resources belongs to another domain",
            ));
        }
        let mut text = Vec::new();
        file.take(ORIGIN_MAX_BYTES + 1).read_to_end(&mut text)?;
        let wrong = "the record of the domain's host resources is invalid";
        Self::parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, wrong))
    }
}

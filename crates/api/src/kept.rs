//! What a registry keeps: domains, or pods.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use spec::Name;

use super::ended::Ended;
use super::files;

/// The shortest record that is written.
const LENGTH_MIN: usize = 2048;

/// What a registry has the names of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Virtual machines.
    Domain,
    /// Pods.
    Pod,
}

impl Kind {
    /// The program and its first words, for its verbs.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Kind::Domain => "biv",
            Kind::Pod => "biv pod",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Domain => "domain",
            Kind::Pod => "pod",
        })
    }
}

/// What a registry keeps of each, in its directory ([`crate::files::RECORD`]).
pub trait Kept: Serialize + DeserializeOwned {
    /// Of what it is.
    const KIND: Kind;

    /// The version that this code writes; it reads no other.
    const VERSION: u32;

    /// The version of this one.
    fn version(&self) -> u32;

    /// Has it say another name.
    fn set_name(&mut self, name: Name);

    /// Whether what is there stays when it has ended, until it is removed.
    fn is_kept(&self) -> bool;

    /// How it ended, if it has and could say so.
    fn ending(&self) -> Option<&Ended>;

    /// The record in a file.
    ///
    /// # Errors
    ///
    /// It is none, or of another version.
    fn parse(text: &[u8]) -> io::Result<Self> {
        let record: Self = serde_json::from_slice(text)?;
        match record.version() == Self::VERSION {
            true => Ok(record),
            false => Err(io::Error::other("it was written by another version of biv")),
        }
    }

    /// Writes it over what the file has.
    ///
    /// # Errors
    ///
    /// The host's.
    fn write(&self, file: &File) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        // Not shorter than what it overwrites, in case somebody reads it just now.
        text.resize(text.len().max(LENGTH_MIN), b' ');
        file.write_all_at(&text, 0)?;
        file.set_len(text.len() as u64)
    }
}

/// A record and the file that it is in, which its process writes when it starts and when it ends.
#[derive(Debug)]
pub struct Written<R> {
    /// The record.
    pub record: R,
    file: File,
}

impl<R: Kept> Written<R> {
    /// Writes it to a directory.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn create(directory: impl AsFd, record: R) -> io::Result<Self> {
        let file = File::from(files::create(directory, files::RECORD)?);
        record.write(&file)?;
        Ok(Self { record, file })
    }

    /// Changes it, there too.
    pub fn change(&mut self, change: impl FnOnce(&mut R)) {
        change(&mut self.record);
        // Whoever looks finds that it says what it said before.
        let _ = self.record.write(&self.file);
    }
}

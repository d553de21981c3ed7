//! The orders for a process that runs a machine: run a machine that is described, or restore a
//! snapshot.
//!
//! `biv run` and `biv restore` carry an order out themselves, or hand it to a detached process
//! ([`session::detach`]): as JSON, in a memory file whose descriptor that process inherits. So
//! nothing depends on how a command line was written, and a program that has a description needs
//! none.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::IntoRawFd;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spec::Spec;

use super::restore::GoOn;
use crate::domain::Beginning;
use crate::helper::again;

/// The kind of process that does this.
pub const KIND: &str = "launch";

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Launch {
    /// A machine is to run.
    Run(Box<Spec>, Beginning),
    /// One is to run, and again when it has ended, as its description says.
    Supervise(Box<Spec>, Beginning),
    /// One is to go on.
    GoOn(Box<GoOn>),
}

impl Launch {
    /// How much is said on standard error.
    #[must_use]
    pub fn verbosity(&self) -> u8 {
        match self {
            Self::Run(spec, _) | Self::Supervise(spec, _) => spec.watch.verbose,
            Self::GoOn(_) => 0,
        }
    }

    /// Whether it goes on by itself.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        match self {
            Self::Run(spec, _) => spec.life.detached,
            Self::Supervise(..) => true,
            Self::GoOn(order) => order.detached,
        }
    }

    /// What is to run, for people.
    fn shown(&self) -> Vec<OsString> {
        match self {
            Self::Run(spec, _) | Self::Supervise(spec, _) => spec.process.args.clone(),
            Self::GoOn(order) => vec![order.file.clone().into_os_string()],
        }
    }
}

/// What such a process is started with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carry {
    /// The descriptor that says what is to be done.
    pub descriptor: i32,
    /// It goes on by itself, and tells who waits at the other end of standard input.
    pub detached: bool,
}

impl Carry {
    /// The inverse of [`command`].
    ///
    /// # Errors
    ///
    /// There is no such descriptor, or something else in it.
    pub fn read<T: DeserializeOwned>(&self) -> io::Result<T> {
        let mut file = File::from(host::inherited::take(self.descriptor)?);
        let mut text = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// A process of ours that does this.
///
/// # Errors
///
/// The host has no file for it.
pub fn command(launch: &Launch) -> io::Result<Command> {
    command_of(KIND, launch, launch.is_detached(), &launch.shown())
}

/// A process of ours of any kind that is started with a [`Carry`], for what is to be done; `shown` is what it runs, for
/// people.
///
/// # Errors
///
/// The host has no file for it.
pub fn command_of(
    kind: &str,
    what: &impl Serialize,
    detached: bool,
    shown: &[OsString],
) -> io::Result<Command> {
    let mut file = File::from(memfd_create("biv-launch", MemfdFlags::empty())?);
    file.write_all(&serde_json::to_vec(what)?)?;
    // It stays open in what takes our place, and here until our end.
    let order = Carry { descriptor: file.into_raw_fd(), detached };
    let mut command = again(kind, &order)?;
    // For who looks at the processes of the host.
    command.arg("--").args(shown);
    Ok(command)
}

//! What a process that runs a machine is to do: run one that is described, or go on from a snapshot.
//!
//! `biv run` and `biv restore` do it themselves, or hand it to another process of ours that goes on by itself
//! ([`crate::detach`]): as JSON, in a file in memory, of which that inherits a descriptor. So nothing depends
//! on how a command line was written, and a program that has a description needs none.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use spec::Spec;

use super::restore::{GoOn, restore};
use super::{Error, run};
use crate::detach::{self, Child};
use crate::domain;

/// The verb by which `biv` starts itself to do this.
pub const VERB: &str = "launch";

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Launch {
    /// A machine is to run.
    Run(Box<Spec>),
    /// One is to go on.
    GoOn(Box<GoOn>),
}

impl Launch {
    /// Does it, or has a process do it that goes on by itself; returns the exit status.
    ///
    /// # Errors
    ///
    /// There is no machine, or none to its end.
    pub fn start(&self) -> Result<u8, Error> {
        match self.is_detached() {
            true => Ok(command(self).and_then(detach::start).map_err(domain::Error::Detach)?),
            false => self.carry_out(None),
        }
    }

    /// Does it in this process.
    ///
    /// # Errors
    ///
    /// There is no machine, or none to its end.
    pub fn carry_out(&self, child: Option<Child>) -> Result<u8, Error> {
        match self {
            Self::Run(spec) => run(spec, child),
            Self::GoOn(order) => restore(order, child),
        }
    }

    /// How much is said on standard error.
    #[must_use]
    pub fn verbosity(&self) -> u8 {
        match self {
            Self::Run(spec) => spec.watch.verbose,
            Self::GoOn(_) => 0,
        }
    }

    /// Whether it goes on by itself.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        match self {
            Self::Run(spec) => spec.life.detached,
            Self::GoOn(order) => order.detached,
        }
    }

    /// What is to run, for people.
    fn shown(&self) -> Vec<OsString> {
        match self {
            Self::Run(spec) => spec.process.args.clone(),
            Self::GoOn(order) => vec![order.file.clone().into_os_string()],
        }
    }

    /// What another process of ours was given to do: the inverse of [`command`].
    ///
    /// # Errors
    ///
    /// There is no such descriptor, or something else in it.
    pub fn take(descriptor: i32) -> io::Result<Self> {
        let mut file = File::from(host::inherited::take(descriptor)?);
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
    let mut file = File::from(memfd_create("biv-launch", MemfdFlags::empty())?);
    file.write_all(&serde_json::to_vec(launch)?)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(std::env::args_os().next().unwrap_or_else(|| OsString::from("biv")));
    // It stays open in what takes our place, and here until our end.
    command.args([VERB, "--descriptor", &file.into_raw_fd().to_string()]);
    command.args(launch.is_detached().then_some("--detached"));
    // For who looks at the processes of the host.
    command.arg("--").args(launch.shown());
    Ok(command)
}

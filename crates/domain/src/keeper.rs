//! A paravirtual domain and its keeper: what the domain leaves in its directory for one, and that there is one.
//!
//! The keeper is a process of this program's that belongs to no domain ([`keeper`]). The first domain starts it, by way
//! of a process that ends at once, so that it is nobody's child.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use api::keeper as asked;
use api::registry::Claim;
use api::{Registry, files};
use gates::Gates;
use rustix::fs::{FileType, Mode, OFlags, mknodat, openat};
use serde::{Deserialize, Serialize};
use spec::Spec;

use crate::helper;

/// What such a process is called.
pub const KIND: &str = "keeper";

/// Be the keeper of a registry, or start who is.
#[derive(Debug, Serialize, Deserialize)]
pub struct Keeping {
    registry: PathBuf,
    /// It is the keeper itself.
    is_keeper: bool,
}

impl Keeping {
    /// Do it.
    ///
    /// # Errors
    ///
    /// Those of the start, or of the keeper.
    pub fn run(&self) -> io::Result<()> {
        host::inherited::close_marked();
        match self.is_keeper {
            true => keeper::keep(&self.registry),
            false => {
                // Nobody's terminal, and no domain's session.
                rustix::process::setsid()?;
                let keeper = Self { registry: self.registry.clone(), is_keeper: true };
                helper::helper(KIND, &keeper)?.stderr(Stdio::null()).spawn().map(drop)
            }
        }
    }
}

/// What a domain has that is kept.
#[derive(Debug)]
pub struct Kept {
    /// What says when its vCPUs may run.
    gates: Gates,
    /// Where the number of the process is written that forks its helpers.
    helpers: File,
    /// The reading ends of what continues this process, and its helpers.
    lifelines: [File; 2],
    /// The process that starts a keeper, if there was none.
    starts: Option<Child>,
}

/// Leave in a domain's directory what a keeper needs, and see to it that there is one. Nothing is waited for: the
/// keeper finds the domain when it is there.
///
/// # Errors
///
/// The domain's files cannot be made.
pub fn enter(registry: &Registry, claim: &Claim, spec: &Spec) -> io::Result<Kept> {
    let directory = &claim.directory;
    let file = File::from(files::create(directory, gates::FILE)?);
    let gates = Gates::create(&file, spec.machine.processors.into())?;
    let helpers = File::from(files::create(directory, asked::HELPERS)?);
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(directory, asked::LIFELINE, FileType::Fifo, mode, 0)?;
    let listen = || -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(directory, asked::LIFELINE, flags, Mode::empty())?.into())
    };
    let lifelines = [listen()?, listen()?];
    host::continue_at_hang_up(&lifelines[0], std::process::id().cast_signed())?;
    // From here on a keeper takes it on.
    asked::set_policy(directory, &spec.machine.scheduling)?;
    let starts = match asked::nudge(registry) {
        true => None,
        // It does without one, if need be.
        false => start(registry).ok(),
    };
    Ok(Kept { gates, helpers, lifelines, starts })
}

impl Kept {
    /// Hand the machine what concerns it. What is returned is to be held as long as it runs.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn hand_over(mut self, configuration: &mut vmm::Configuration) -> io::Result<[File; 2]> {
        if let Some(mut starts) = self.starts.take() {
            // It has had its time, and has ended.
            starts.wait()?;
        }
        let (mut helpers, lifeline) = (self.helpers, self.lifelines[1].try_clone()?);
        configuration.gates = Some(self.gates);
        configuration.on_helpers = vmm::OnHelpers(Some(Box::new(move |zygote: u32| {
            let group = -zygote.cast_signed();
            // What could not be continued is not for the keeper.
            if host::continue_at_hang_up(&lifeline, group).is_ok() {
                let _ = writeln!(helpers, "{zygote}");
            }
        })));
        Ok(self.lifelines)
    }
}

/// Start a keeper, by way of a process that ends when it has done so.
fn start(registry: &Registry) -> io::Result<Child> {
    let order = Keeping { registry: registry.path().to_owned(), is_keeper: false };
    let mut command = helper::again(KIND, &order)?;
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).spawn()
}

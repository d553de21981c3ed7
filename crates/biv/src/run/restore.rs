//! `biv restore`: a domain goes on from a snapshot, in surroundings like those that it was in.

use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use clap::Parser;
use vmm::snapshot::Snapshot;

use super::guest::{self, Guest};
use super::{Error, run_domain, sandbox};
use crate::cli::{Cli, Restore, Run, Verb};
use crate::domain::detach::{self, Role};
use crate::domain::snapshot::{Note, Origin};
use crate::domain::{Name, files as domain_files};
use crate::network;

/// What this process was started as.
pub fn origin() -> io::Result<Origin> {
    let arguments = std::env::args_os().skip(1).map(OsStringExt::into_vec).collect();
    let directory = std::env::current_dir()?.as_os_str().as_bytes().to_vec();
    Ok(Origin { arguments, directory })
}

/// Whether a machine of these arguments can be given the same surroundings again.
pub fn is_possible(arguments: &Run) -> bool {
    // What such a disk has is gone with its machine, and who is connected is not told.
    !arguments.disks().any(|disk| disk.snapshot) && arguments.vsock.is_none()
}

/// Does what `biv restore` says; returns the exit status.
pub fn restore(arguments: &Restore) -> Result<u8, Error> {
    let child = match arguments.detach.then(detach::role).transpose()? {
        Some(Role::Parent) => return Ok(detach::start()?),
        Some(Role::Child(child)) => Some(child),
        None => None,
    };
    let file = &arguments.file;
    let opened = File::open(file).map_err(|error| Error::Open { path: file.clone(), error })?;
    let failed = |error| Error::Snapshot { path: file.clone(), error };
    let snapshot = Snapshot::open(opened).map_err(failed)?;
    if !arguments.no_verify {
        snapshot.verify().map_err(failed)?;
    }
    let note: Note = serde_json::from_slice(snapshot.note())
        .map_err(|_| failed(vmm::snapshot::Error::Damaged("its note makes no sense")))?;
    let origin = note.origin.ok_or_else(|| Error::NoOrigin(file.clone()))?;
    let run = run_of(&origin, arguments).ok_or_else(|| Error::NoOrigin(file.clone()))?;
    let directory = Path::new(std::ffi::OsStr::from_bytes(&origin.directory));
    std::env::set_current_dir(directory)
        .map_err(|error| Error::Open { path: directory.to_owned(), error })?;
    let confined = !run.no_seccomp;
    let network = network::start(&guest::net(&run), &run.publish, run.cpus.into(), confined)?;
    let guest = Guest::restored(&run, snapshot, note.conversation)?;
    run_domain(guest, network, &run, child, Some(origin))
}

/// The arguments of `biv run` that it was, as far as they are not other ones now.
fn run_of(origin: &Origin, arguments: &Restore) -> Option<Run> {
    let words = origin.arguments.iter().cloned().map(std::ffi::OsString::from_vec);
    let words = [std::ffi::OsString::from("biv")].into_iter().chain(words);
    let Ok(Cli { verb: Verb::Run(run), .. }) = Cli::try_parse_from(words) else { return None };
    let mut run = *run;
    sandbox::settle(&mut run);
    // It has the devices of one that is known to others, and is that.
    let made_up = || (!arguments.detach).then(|| Name::generated(domain_files::random()));
    run.name = arguments.name.clone().or_else(made_up);
    run.detach = arguments.detach;
    run.rm = arguments.rm;
    if !arguments.publish.is_empty() {
        run.publish.clone_from(&arguments.publish);
    } else if arguments.no_publish {
        run.publish.clear();
    }
    Some(run)
}

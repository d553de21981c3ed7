//! The verbs that start domains again, `start` and `restart`, and `rename`.

use std::io;
use std::time::Duration;

use super::ending::stop_one;
use super::{Error, for_those};
use crate::cli::domains as cli;
use crate::print;
use api::{Entry, Record, Registry, again, status};
use domain::CheckedSpec;
use spec::Name;

/// `biv start`: those that run are left alone, as podman has it.
pub fn start(arguments: &cli::Start) -> Result<(), Error> {
    for_those::<Record>(
        &arguments.which,
        |entry| !entry.alive,
        |_, entry| match entry.alive {
            true => Ok(print::text(&format!("{}\n", entry.name))?),
            false => launch(&entry.name, description(entry)?),
        },
    )
}

/// `biv restart`.
pub fn restart(arguments: &cli::Restart) -> Result<(), Error> {
    let patience = Duration::from_secs(arguments.time);
    for_those::<Record>(
        &arguments.which,
        |entry| entry.alive,
        |_, entry| {
            // Before it is stopped, so that one that cannot start goes on.
            let description = description(entry)?;
            if entry.is_running() {
                stop_one(entry, patience)?;
            }
            launch(&entry.name, description)
        },
    )
}

/// The description that a domain is started from, with the name that it has now.
fn description(entry: &Entry) -> Result<CheckedSpec, Error> {
    let name = &entry.name;
    let mut spec = again::of_domain(&entry.directory).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoDescription(name.clone()),
        _ => Error::Start(name.clone(), error.to_string()),
    })?;
    if !spec.life.detached || spec.life.remove {
        return Err(Error::NotKept(name.clone()));
    }
    spec.life.name = Some(name.clone());
    CheckedSpec::new(spec).map_err(|error| Error::Start(name.clone(), error.to_string()))
}

/// Starts one that has ended; its name is printed.
fn launch(name: &Name, description: CheckedSpec) -> Result<(), Error> {
    let started = domain::start_again(description);
    match started.map_err(|error| Error::Start(name.clone(), error.to_string()))? {
        status::SUCCESS => Ok(()),
        // It has said why.
        status => Err(Error::NotStarted(name.clone(), status)),
    }
}

/// `biv rename`.
pub fn rename(arguments: &cli::Rename) -> Result<(), Error> {
    let registry = Registry::open()?;
    let from = registry.find(&arguments.name)?.name;
    Ok(registry.rename(&from, &arguments.new_name)?)
}

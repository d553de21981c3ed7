//! The machines of a project, as this program finds, starts and removes them.

use std::path::Path;
use std::process::{Command, Stdio};

use api::{Entry, Registry, registry};
use compose::PROJECT;
use spec::Name;

use super::error::Error;

/// A machine, if it is there.
pub fn found(registry: &Registry, name: &Name) -> Result<Option<Entry>, Error> {
    match registry.find(name.as_str()) {
        Ok(entry) => Ok(Some(entry)),
        Err(registry::Error::Unknown(..)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The value of a label, if it has that.
pub fn label<'a>(entry: &'a Entry, name: &str) -> Option<&'a str> {
    entry.record.as_ref()?.spec.life.labels.get(name).map(String::as_str)
}

/// Whether it belongs to this project.
pub fn is_of(entry: &Entry, project: &Name) -> bool {
    label(entry, PROJECT) == Some(project.as_str())
}

/// Stops and removes a machine.
pub fn remove(registry: &Registry, name: &Name) -> Result<(), Error> {
    // One that has ended already is not stopped.
    let is_running = found(registry, name)?.is_some_and(|entry| entry.is_running());
    let stopped = !is_running || biv_quietly(&["stop", name.as_str()])?;
    match stopped && biv_quietly(&["rm", name.as_str()])? {
        true => Ok(()),
        false => Err(Error::Remove(name.clone())),
    }
}

/// Runs this program; whether it has done what was asked. It says itself why not.
pub fn biv(words: &[&str], directory: Option<&Path>) -> Result<bool, Error> {
    let mut command = program(words)?;
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    Ok(command.status().map_err(Error::Program)?.success())
}

/// The same, without what it prints.
fn biv_quietly(words: &[&str]) -> Result<bool, Error> {
    let status = program(words)?.stdout(Stdio::null()).status();
    Ok(status.map_err(Error::Program)?.success())
}

/// This program, about to be started.
pub fn program(words: &[&str]) -> Result<Command, Error> {
    let mut command = Command::new(std::env::current_exe().map_err(Error::Program)?);
    command.args(words).stdin(Stdio::null());
    Ok(command)
}

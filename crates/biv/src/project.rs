//! `biv up` and `biv down`: the machines of a compose file.
//!
//! 1. *A machine of a project is one of `biv run -d`*, started by this program with the options that the file comes to
//!    ([`compose`]). Nothing is kept of a project but labels of its machines, and the network of its name.
//! 2. *What a machine was made from is in a label*, as a digest: if the file says something else now, the machine is
//!    made again. What is outside of the file, an image or a file of variables, is not looked at.
//! 3. *A machine without the label of this project is never touched*, whatever its name is.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use api::{Entry, Registry, networks, registry};
use compose::{CONFIGURATION, Machine, PROJECT, Project, Service};
use spec::Name;

use crate::cli::{Down, Up, Which};
use crate::print;

/// Where a compose file is looked for, in this order.
const FILES: [&str; 4] =
    ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no file.
    #[error("there is no compose file here ({}); -f names another", FILES.join(", "))]
    NoFile,
    /// It cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    /// It is none.
    #[error("{0}: {1}")]
    File(PathBuf, #[source] compose::Error),
    /// Nobody has said how it is called.
    #[error("{0:?} is no name for a project; give one with -p")]
    NoName(String),
    /// It is not among the services.
    #[error("there is no service {0} in {1}")]
    NoService(Name, PathBuf),
    /// The name of a machine is taken.
    #[error(
        "machine {0} is there already, and not of project {1}; remove it, or choose another name \
         for the project with -p"
    )]
    Foreign(Name, Name),
    /// The registry.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// Networks.
    #[error(transparent)]
    Network(#[from] networks::Error),
    /// This program.
    #[error("cannot start biv: {0}")]
    Program(#[source] io::Error),
    /// It has said why.
    #[error("service {0} has not started")]
    Start(Name),
    /// The same.
    #[error("machine {0} is still there")]
    Remove(Name),
    /// Standard output.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// A compose file that has been read.
struct Opened {
    path: PathBuf,
    home: PathBuf,
    project: Project,
    name: Name,
}

/// `biv up`.
///
/// # Errors
///
/// [`Error`]. Machines that have started by then stay.
pub fn up(arguments: &Up) -> Result<(), Error> {
    let file = read(&arguments.which)?;
    let machines = machines(&file, &arguments.services)?;
    if arguments.dry_run {
        return machines
            .iter()
            .try_for_each(|(_, machine)| Ok(print::text(&format!("{machine}\n"))?));
    }
    let registry = Registry::open()?;
    for (_, machine) in &machines {
        if let Some(entry) = found(&registry, &machine.name)?
            && !is_of(&entry, &file.name)
        {
            return Err(Error::Foreign(machine.name.clone(), file.name));
        }
    }
    if machines.iter().any(|(_, machine)| machine.has_network()) {
        match Registry::of_pods()?.networks()?.create(&file.name, None) {
            Ok(_) | Err(networks::Error::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    machines
        .iter()
        .try_for_each(|(service, machine)| start(&registry, service, machine, &file.home))
}

/// `biv down`.
///
/// # Errors
///
/// [`Error`]. What could not be removed is there as before.
pub fn down(arguments: &Down) -> Result<(), Error> {
    // Without the file, if its name is enough.
    let name = match (&arguments.which.project_name, &arguments.which.file) {
        (Some(name), None) => name.clone(),
        _ => read(&arguments.which)?.name,
    };
    let registry = Registry::open()?;
    let mut entries: Vec<Entry> = registry.list()?;
    entries.retain(|entry| is_of(entry, &name));
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.record.as_ref().map(|it| it.created)));
    for entry in &entries {
        remove(&registry, &entry.name)?;
        print::text(&format!("{}\n", entry.name))?;
    }
    let networks = Registry::of_pods()?.networks()?;
    match networks.find(name.as_str()) {
        Ok(_) => biv(&["network", "rm", name.as_str()], None).map(drop),
        Err(networks::Error::Unknown(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads the file that is meant.
fn read(which: &Which) -> Result<Opened, Error> {
    let path = match &which.file {
        Some(path) => path.clone(),
        None => {
            let mut known = FILES.iter().map(PathBuf::from);
            known.find(|path| path.exists()).ok_or(Error::NoFile)?
        }
    };
    let fail = |error| Error::Read(path.clone(), error);
    let text = text_of(&path).map_err(fail)?;
    let variable = |name: &str| std::env::var(name).ok();
    let project =
        Project::parse(&text, &variable).map_err(|error| Error::File(path.clone(), error))?;
    let home = path.canonicalize().map_err(fail)?;
    let home = home.parent().unwrap_or(Path::new("/")).to_owned();
    let name = match which.project_name.clone().or(project.name.clone()) {
        Some(name) => name,
        None => name_of(&home)?,
    };
    Ok(Opened { path, home, project, name })
}

fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(compose::FILE_MAX_BYTES + 1).read_to_string(&mut text)?;
    match text.len() as u64 > compose::FILE_MAX_BYTES {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}

/// A project's name by its directory, in small letters, without what no name has.
fn name_of(home: &Path) -> Result<Name, Error> {
    let directory = home.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let name: String = directory.chars().filter(is_plain).collect();
    name.trim_start_matches(['_', '-']).parse().map_err(|_| Error::NoName(directory))
}

/// The machines of these services and of those that they depend on, or of all, in the order in which they start.
fn machines(file: &Opened, wanted: &[Name]) -> Result<Vec<(Name, Machine)>, Error> {
    let services = &file.project.services;
    let mut chosen: BTreeSet<&Name> = BTreeSet::new();
    for name in wanted {
        let found = services.iter().find(|(service, _)| service == name);
        let (service, _) =
            found.ok_or_else(|| Error::NoService(name.clone(), file.path.clone()))?;
        chosen.insert(service);
    }
    // Who is needed comes before.
    for (name, service) in services.iter().rev() {
        if chosen.contains(name) {
            let needed = |it: &&(Name, Service)| service.depends_on(&it.0);
            chosen.extend(services.iter().filter(needed).map(|(name, _)| name));
        }
    }
    let is_chosen = |name: &Name| wanted.is_empty() || chosen.contains(name);
    let chosen = services.iter().filter(|(name, _)| is_chosen(name));
    let machine = |(name, service): &(Name, Service)| {
        let machine = service.machine(&file.name, name, &file.home);
        let machine = machine.map_err(|error| Error::File(file.path.clone(), error))?;
        Ok((name.clone(), machine))
    };
    chosen.map(machine).collect()
}

fn found(registry: &Registry, name: &Name) -> Result<Option<Entry>, Error> {
    match registry.find(name.as_str()) {
        Ok(entry) => Ok(Some(entry)),
        Err(registry::Error::Unknown(..)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn label<'a>(entry: &'a Entry, name: &str) -> Option<&'a str> {
    entry.record.as_ref()?.spec.life.labels.get(name).map(String::as_str)
}

fn is_of(entry: &Entry, project: &Name) -> bool {
    label(entry, PROJECT) == Some(project.as_str())
}

/// Has a machine run as it is described now.
fn start(registry: &Registry, service: &Name, machine: &Machine, home: &Path) -> Result<(), Error> {
    let digest = machine.digest(home);
    let started = match found(registry, &machine.name)? {
        Some(entry) if label(&entry, CONFIGURATION) == Some(&digest) => match entry.alive {
            true => {
                print::text(&format!("{}\n", machine.name))?;
                return Ok(());
            }
            false => biv(&["start", machine.name.as_str()], None)?,
        },
        other => {
            if other.is_some() {
                remove(registry, &machine.name)?;
            }
            let label = format!("--label={CONFIGURATION}={digest}");
            let mut words = vec!["run", "-d", &label];
            words.extend(machine.options.iter().map(String::as_str));
            biv(&words, Some(home))?
        }
    };
    match started {
        true => Ok(()),
        false => Err(Error::Start(service.clone())),
    }
}

/// Stops and removes a machine.
fn remove(registry: &Registry, name: &Name) -> Result<(), Error> {
    // One that has ended already is not stopped.
    let is_running = found(registry, name)?.is_some_and(|entry| entry.is_running());
    let stopped = !is_running || biv_quietly(&["stop", name.as_str()])?;
    match stopped && biv_quietly(&["rm", name.as_str()])? {
        true => Ok(()),
        false => Err(Error::Remove(name.clone())),
    }
}

/// Runs this program; whether it has done what was asked. It says itself why not.
fn biv(words: &[&str], directory: Option<&Path>) -> Result<bool, Error> {
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

fn program(words: &[&str]) -> Result<Command, Error> {
    let mut command = Command::new(std::env::current_exe().map_err(Error::Program)?);
    command.args(words).stdin(Stdio::null());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_called_as_its_directory() {
        let check = |directory: &str, expected: Option<&str>| {
            let name = name_of(Path::new(directory)).ok();
            assert_eq!(name.as_ref().map(Name::as_str), expected, "{directory}");
        };
        check("/home/me/My Shop.d", Some("myshopd"));
        check("/home/me/_x-1", Some("x-1"));
        check("/home/me/...", None);
        check("/", None);
    }
}

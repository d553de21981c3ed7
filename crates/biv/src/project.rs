//! `biv up` and `biv down`: the machines of a compose file.
//!
//! 1. *A machine of a project is one of `biv run -d`*, started by this program with the options that the file comes to
//!    ([`compose`]). Nothing is kept of a project but labels of its machines, and the network of its name.
//! 2. *What a machine was made from is in a label*, as a digest: if the file says something else now, the machine is
//!    made again. What is outside of the file, an image or a file of variables, is not looked at.
//! 3. *A machine without the label of this project is never touched*, whatever its name is.

mod error;
mod machines;
mod ready;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use api::{Entry, Registry, networks};
use compose::{CONFIGURATION, Machine, Project, Service};
use spec::Name;

use crate::cli::{Down, Up, Which};
use crate::print;
pub use error::Error;
use error::FILES;
use machines::{biv, found, is_of, label, remove};
use ready::Needed;

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
    let machines = machines_of(&file, &arguments.services)?;
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
    machines.iter().try_for_each(|(service, machine)| {
        start(&registry, service, machine, &file.home, &needed_by(&file, &machines, service))
    })
}

/// What a service waits for.
fn needed_by<'a>(
    file: &'a Opened,
    machines: &'a [(Name, Machine)],
    service: &Name,
) -> Vec<Needed<'a>> {
    let of = |name: &Name| file.project.services.iter().find(|(it, _)| it == name);
    let needed = |(other, machine): &'a (Name, Machine)| {
        let when = of(service)?.1.needs(other)?;
        let health = of(other)?.1.health();
        Some(Needed { service: other, machine: &machine.name, when, health })
    };
    machines.iter().filter_map(needed).collect()
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
fn machines_of(file: &Opened, wanted: &[Name]) -> Result<Vec<(Name, Machine)>, Error> {
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
            let needed = |it: &&(Name, Service)| service.needs(&it.0).is_some();
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

/// Has a machine run as it is described now, after what it needs.
fn start(
    registry: &Registry,
    service: &Name,
    machine: &Machine,
    home: &Path,
    needed: &[Needed<'_>],
) -> Result<(), Error> {
    let digest = machine.digest(home);
    let there = found(registry, &machine.name)?;
    let is_same = there.as_ref().is_some_and(|entry| label(entry, CONFIGURATION) == Some(&digest));
    if is_same && there.as_ref().is_some_and(|entry| entry.alive) {
        return Ok(print::text(&format!("{}\n", machine.name))?);
    }
    needed.iter().try_for_each(|needed| needed.wait(registry))?;
    let started = if is_same {
        biv(&["start", machine.name.as_str()], None)?
    } else {
        if there.is_some() {
            remove(registry, &machine.name)?;
        }
        let label = format!("--label={CONFIGURATION}={digest}");
        let mut words = vec!["run", "-d", &label];
        words.extend(machine.options.iter().map(String::as_str));
        biv(&words, Some(home))?
    };
    match started {
        true => Ok(()),
        false => Err(Error::Start(service.clone())),
    }
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

//! `biv restore`: a domain goes on from a snapshot.
//!
//! What the machine is comes from the file: memory, processors, which devices. It is checked, and grants nothing.
//! What it has of the host comes from the command line, or from the file's label if this user's `biv` vouches for
//! it ([`crate::seal`]), and from nowhere else.

use std::fs::File;
use std::io;

use clap::Parser;
use vmm::snapshot::Snapshot;

use super::guest::{self, Guest, Looks};
use super::surroundings::Surroundings;
use super::{Error, SHELL, run_domain, sandbox};
use crate::cli::{Cli, Restore, Run, Verb};
use crate::domain::detach::{self, Role};
use crate::domain::origin::Kind;
use crate::domain::snapshot::Note;
use crate::domain::{Name, Origin, files as domain_files};
use crate::network;
use crate::seal::{self, Purpose};

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
    let nonsense = || failed(vmm::snapshot::Error::Damaged("its note makes no sense"));
    let note = Note::parse(snapshot.note()).ok_or_else(nonsense)?;
    if note.conversation.as_ref().is_some_and(|conversation| !conversation.has_command()) {
        return Err(nonsense());
    }
    let label = seal::read(snapshot.label(), Purpose::Restore, &snapshot.digest());
    let recorded = match snapshot.label() {
        [] => Some(Recorded::default()),
        _ => Recorded::parse(label.text),
    };
    let Recorded { machine: kind, command, surroundings } =
        recorded.ok_or_else(|| Error::NoOrigin(file.clone()))?;
    let surroundings = choose(arguments, surroundings, label.is_ours)?;
    let directory = surroundings.directory.clone();
    let processors = u8::try_from(snapshot.processors()).map_err(|_| nonsense())?;
    let mut run = machine(&kind, arguments).ok_or_else(nonsense)?;
    (run.mem, run.cpus) = (snapshot.memory(), processors);
    surroundings.apply(&mut run);
    if let Some(directory) = &directory {
        std::env::set_current_dir(directory)
            .map_err(|error| Error::Open { path: directory.clone(), error })?;
    }
    let confined = !run.no_seccomp;
    let network = network::start(&guest::net(&run), &run.publish, run.cpus.into(), confined)?;
    let looks = Looks { sees_directory: directory.is_some(), image_disk: kind.image_disk };
    let mut guest = Guest::restored(&run, snapshot, note.conversation, looks)?;
    guest.known_command = Some(command);
    run_domain(guest, network, &run, child)
}

/// What a label says, whoever vouches for it; nothing, if there is no label.
#[derive(Default)]
struct Recorded {
    machine: Kind,
    command: Vec<String>,
    surroundings: Surroundings,
}

impl Recorded {
    /// None for what this `biv` does not know.
    fn parse(text: &[u8]) -> Option<Self> {
        let origin = Origin::parse(text)?;
        let surroundings = Surroundings::parse(origin.options())?;
        Some(Self { machine: origin.machine, command: origin.command, surroundings })
    }
}

/// What it has of the host: what is said, and what was recorded if `is_ours`. Otherwise all that is wanted has to
/// be said.
fn choose(
    arguments: &Restore,
    mut recorded: Surroundings,
    is_ours: bool,
) -> Result<Surroundings, Error> {
    let said = arguments.surroundings.clone().absolute()?;
    if arguments.no_publish {
        recorded.publish.clear();
    }
    if is_ours {
        return Ok(said.or(recorded));
    }
    let missing = said.missing(&recorded);
    match missing == Surroundings::default() {
        true => Ok(said),
        false => Err(Error::Unnamed { path: arguments.file.clone(), wanted: missing.shown() }),
    }
}

/// The arguments of a machine of this kind that has nothing of the host.
fn machine(kind: &Kind, arguments: &Restore) -> Option<Run> {
    let Ok(Cli { verb: Verb::Run(run), .. }) = Cli::try_parse_from(["biv", "run"]) else {
        return None;
    };
    let mut run = *run;
    if kind.sandbox {
        run.sandbox = true;
        sandbox::limit(&mut run);
    }
    // It has the devices of one that is known to others, and is that.
    let made_up = || (!arguments.detach).then(|| Name::generated(domain_files::random()));
    run.name = arguments.name.clone().or_else(made_up);
    run.detach = arguments.detach;
    run.rm = arguments.rm;
    run.no_seccomp = arguments.no_seccomp;
    run.entropy = kind.entropy;
    run.debug_exit = kind.debug_exit;
    run.interactive = kind.interactive;
    run.tty = kind.terminal;
    run.append = kind.virtio_console.then(|| "console=hvc0".to_owned());
    // It runs already, whatever it is.
    run.command = SHELL.map(|word| String::from_utf8_lossy(word).into_owned().into()).to_vec();
    Some(run)
}

/// What is recorded of a machine that is started with these arguments.
pub fn origin(arguments: &Run, guest: &Guest) -> io::Result<Origin> {
    let kind = Kind {
        sandbox: arguments.sandbox,
        entropy: arguments.entropy,
        debug_exit: arguments.debug_exit,
        interactive: arguments.interactive,
        terminal: super::is_on_terminal(arguments),
        virtio_console: guest.is_plain && guest::has_virtio_console(arguments),
        image_disk: guest.directories.image_disk.as_ref().map(|disk| disk.identity().0),
    };
    let surroundings = Surroundings::of(arguments, guest::net(arguments), guest.likeness())?;
    Ok(Origin::new(kind, guest.shown_command(arguments), surroundings.words()))
}

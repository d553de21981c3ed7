//! `biv restore`: a domain goes on from a snapshot.
//!
//! The machine comes from the file: memory, vCPUs, devices. The file is checked, and grants
//! nothing. The host resources come from the command line, or from the file's label if this user's
//! `biv` has signed it ([`crate::seal`]), and from nowhere else.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use api::{Name, Origin, files as domain_files};
use serde::{Deserialize, Serialize};
use spec::{Board, Boot, Device, Life, Process, Spec};
use vmm::snapshot::Snapshot;

use super::error::Error;
use super::guest::{self, Guest, Looks};
use super::host_resources::HostResources;
use super::order::SHELL;
use super::runner::{enter_directory, run_domain};
use super::sandbox;
use crate::domain::Beginning;
use crate::network;
use crate::seal::{self, Purpose};
use crate::snapshot::Note;
use session::detach::Child;

/// A machine that is to go on from a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GoOn {
    /// The snapshot.
    #[serde(with = "spec::text")]
    pub file: PathBuf,
    /// What is said of the host.
    pub host_resources: HostResources,
    /// The domain's name.
    pub name: Option<Name>,
    /// It runs by itself.
    pub detached: bool,
    /// Nothing of it is kept.
    pub remove: bool,
    /// No port leads to it, whatever was recorded.
    pub no_publish: bool,
    /// The guest's memory is only looked at as it is needed.
    pub no_verify: bool,
    /// The machine's process may make any system call.
    pub no_seccomp: bool,
}

/// Does what `biv restore` says; returns the exit status.
pub fn restore(order: &GoOn, child: Option<Child>) -> Result<u8, Error> {
    let file = &order.file;
    let opened = File::open(file).map_err(|error| Error::Open { path: file.clone(), error })?;
    let failed = |error| Error::Snapshot { path: file.clone(), error };
    let snapshot = Snapshot::open(opened).map_err(failed)?;
    if !order.no_verify {
        snapshot.verify().map_err(failed)?;
    }
    let nonsense = || failed(vmm::snapshot::Error::Damaged("its record of the machine is invalid"));
    let note = Note::parse(snapshot.note()).ok_or_else(nonsense)?;
    let conversation = note.conversation.as_ref();
    let has_process_one = conversation.is_some_and(hub::Conversation::has_process_one);
    if !has_process_one && conversation.is_some_and(|it| !it.has_command()) {
        return Err(nonsense());
    }
    let label = seal::read(snapshot.label(), Purpose::Restore, &snapshot.digest());
    let origin = match snapshot.label() {
        [] => Some(Origin::default()),
        _ => Origin::parse(label.text),
    };
    let origin = origin.ok_or_else(|| Error::NoOrigin(file.clone()))?;
    let host_resources = choose(order, HostResources::of(&origin.spec), label.is_ours)?;
    let processors = u8::try_from(snapshot.processors()).map_err(|_| nonsense())?;
    if has_process_one != origin.spec.boot.init.is_some() {
        return Err(nonsense());
    }
    let mut spec = machine(&origin.spec, order);
    spec.machine.processors = processors;
    spec.machine.memory = snapshot.memory();
    if let Some((memory, maximum)) = snapshot.paravirtual().map_err(failed)? {
        spec.machine.board = Board::Xen;
        spec.machine.memory = memory;
        spec.machine.maximum_memory = (maximum > memory).then_some(maximum);
    }
    host_resources.apply(&mut spec).map_err(Error::Contradiction)?;
    if spec.shared_network().is_some() {
        // Its kernel has the address that it had.
        let reason = "a machine that goes on from a snapshot joins no network (--net)";
        return Err(Error::Contradiction(reason.to_owned()));
    }
    enter_directory(&spec)?;
    let network = network::start(&spec, &guest::net(&spec))?;
    let looks = Looks {
        sees_directory: spec.directory.is_some(),
        image_disk: origin.image_disk,
        // A machine can do without, and a stranger's word opens no directory.
        modules: note.has_modules.then(|| origin.modules.filter(|_| label.is_ours)),
    };
    let mut guest = Guest::restored(&spec, snapshot, note.conversation, looks)?;
    guest.known_command = Some(origin.command);
    run_domain(guest, network, &spec, child, Beginning::FromSnapshot)
}

/// What it has of the host: what is said, and what was recorded if `is_ours`. Otherwise all that is wanted has to
/// be said.
fn choose(
    order: &GoOn,
    mut recorded: HostResources,
    is_ours: bool,
) -> Result<HostResources, Error> {
    let said = order.host_resources.clone().absolute()?;
    if order.no_publish {
        recorded.publish.clear();
    }
    if is_ours {
        return Ok(said.or(recorded));
    }
    let missing = said.missing(&recorded);
    match missing == HostResources::default() {
        true => Ok(said),
        false => Err(Error::Unnamed { path: order.file.clone(), wanted: missing.shown() }),
    }
}

/// A machine of the kind that was recorded, which has nothing of the host: a stranger may have recorded it.
fn machine(recorded: &Spec, order: &GoOn) -> Spec {
    let is_harmless =
        |device: &&Device| matches!(device, Device::Entropy(_) | Device::DebugExit(_));
    // It has the devices of one that is known to others, and is that.
    let made_up = || (!order.detached).then(|| Name::generated(domain_files::random()));
    let Process { args, terminal, interactive, .. } = recorded.process.clone();
    let shell = || SHELL.map(OsString::from).to_vec();
    let mut spec = Spec {
        boot: Boot {
            append: guest::has_virtio_console(recorded, "").then(|| "console=hvc0".to_owned()),
            init: recorded.boot.init.clone(),
            ..Boot::default()
        },
        devices: recorded.devices.iter().filter(is_harmless).cloned().collect(),
        process: Process {
            // It runs already, whatever it is.
            args: if args.is_empty() { shell() } else { args },
            terminal,
            interactive,
            ..Process::default()
        },
        life: Life {
            name: order.name.clone().or_else(made_up),
            detached: order.detached,
            remove: order.remove,
            ..Life::default()
        },
        sandbox: recorded.sandbox,
        ..Spec::default()
    };
    spec.engine.no_seccomp = order.no_seccomp;
    if spec.sandbox {
        sandbox::limit(&mut spec);
    }
    spec
}

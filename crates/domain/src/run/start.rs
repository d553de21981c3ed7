//! Starts a machine, in this process or in a detached one.

use std::os::unix::process::CommandExt;

use api::StartedBy;
use spec::{Restart, Spec};

use super::boot_disk::ServeDisk;
use super::checked::CheckedSpec;
use super::error::Error;
use super::guest::{self, Guest};
use super::launch::{self, Carry, Launch};
use super::runner::{enter_directory, run_domain};
use super::{image, machine, restore, shares, supervisor, warm};
use crate::domain::{Beginning, Domain};
use crate::{domain, helper, log, network};
use session::detach::{self, Child};

/// Runs the machine that is described, in this process or, if it is to be detached, in a process of its own; returns
/// the exit status ([`api::status`]).
///
/// # Errors
///
/// The machine cannot be made, or fails before its guest ends.
pub fn launch(spec: CheckedSpec) -> Result<u8, Error> {
    begin(spec, Beginning::New)
}

/// Starts a detached machine again that has ended, as [`launch`] has started it. It has the name that its description
/// says.
///
/// # Errors
///
/// As with [`launch`], or there is none of that name that has ended.
pub fn start_again(spec: CheckedSpec) -> Result<u8, Error> {
    begin(spec, Beginning::Again(StartedBy::User))
}

fn begin(spec: CheckedSpec, beginning: Beginning) -> Result<u8, Error> {
    let mut spec = spec.into_inner();
    log::start(spec.watch.verbose);
    image::settle(&mut spec)?;
    if Domain::is_wanted(&spec.life) && spec.directory.is_none() {
        // It may be started again from elsewhere.
        spec.directory = std::env::current_dir().ok();
    }
    match (spec.life.detached, spec.life.restart) {
        (false, _) => boot(&spec, None, beginning),
        (true, Restart::No) => detach(&Launch::Run(Box::new(spec), beginning)),
        (true, _) => detach(&Launch::Supervise(Box::new(spec), beginning)),
    }
}

/// Has a machine go on from a snapshot, as [`launch`] has one run.
///
/// # Errors
///
/// There is no machine, or none to its end.
pub fn go_on(order: restore::GoOn) -> Result<u8, Error> {
    log::start(0);
    match order.detached {
        true => detach(&Launch::GoOn(Box::new(order))),
        false => restore::restore(&order, None),
    }
}

/// Starts a process that runs the machine and goes on by itself; returns the exit status.
fn detach(launch: &Launch) -> Result<u8, Error> {
    Ok(launch::command(launch).and_then(detach::start).map_err(domain::Error::Detach)?)
}

/// Does what another process of ours has this one do; returns the exit status.
///
/// # Errors
///
/// There is no such descriptor, or something else in it; or there is no machine, or none to its end.
pub fn carry_out(order: &Carry) -> Result<u8, Error> {
    let launch: Launch = order.read()?;
    log::start(launch.verbosity());
    let child = order.detached.then(Child::of_process).transpose();
    let child = child.map_err(domain::Error::Detach)?;
    match launch {
        Launch::Run(spec, beginning) => boot(&spec, child, beginning),
        Launch::Supervise(spec, beginning) => {
            // The session is the supervisor's.
            shares::apply(spec.machine.shares)?;
            Ok(supervisor::supervise(*spec, beginning, child)?)
        }
        Launch::GoOn(order) => restore::restore(&order, child),
    }
}

/// Runs a machine that reads a disk, which ends with the process that has started it; returns the exit status.
///
/// # Errors
///
/// There is no machine, or none to its end.
pub fn serve_disk(order: &ServeDisk) -> Result<u8, Error> {
    log::start(0);
    helper::bound(&[])?;
    let spec = CheckedSpec::new(order.described())?.into_inner();
    boot(&spec, None, Beginning::New)
}

/// Runs a machine that is described, from a warm start if there is one that fits; returns the exit status.
fn boot(spec: &Spec, child: Option<Child>, beginning: Beginning) -> Result<u8, Error> {
    enter_directory(spec)?;
    shares::apply(spec.machine.shares)?;
    // It starts while we read the guest's files.
    let network = network::start(spec, &guest::net(spec))?;
    let mut guest = Guest::find(spec)?;
    let key = guest.key.take();
    let result = run_domain(guest, network, spec, child, beginning);
    if let Err(Error::Machine(machine::Error::Machine(vmm::Error::Snapshot(_)))) = &result {
        // It was taken for one that fits; the next machine boots, and leaves another.
        key.iter().for_each(warm::forget);
        start_cold(spec);
    }
    result
}

/// Executes the program again, to boot: there has been no output yet. A detached process does not, because its parent
/// waits for it.
fn start_cold(spec: &Spec) {
    if spec.boot.cold || spec.life.detached {
        return;
    }
    let mut spec = spec.clone();
    spec.boot.cold = true;
    // If that fails, it is said why there was no warm start.
    if let Ok(mut command) = launch::command(&Launch::Run(Box::new(spec), Beginning::New)) {
        let _ = command.exec();
    }
}

//! Starts the machine that is meant: in this process, or in one that goes on by itself.

use std::os::unix::process::CommandExt;

use spec::Spec;

use super::error::Error;
use super::guest::{self, Guest};
use super::launch::{self, Carry, Launch};
use super::runner::{enter_directory, run_domain};
use super::{machine, restore, sandbox, warm};
use crate::detach::{self, Child};
use crate::{domain, log, network};

/// Runs the machine that a description means, here or, if it is to be detached, in a process that goes on by itself;
/// returns the exit status ([`api::status`]).
///
/// # Errors
///
/// The description makes no sense, or there is no machine, or none to its end.
pub fn launch(mut spec: Spec) -> Result<u8, Error> {
    sandbox::settle(&mut spec);
    spec.check().map_err(|error| Error::Contradiction(error.to_string()))?;
    start(&Launch::Run(Box::new(spec)))
}

/// Has a machine go on from a snapshot, as [`launch`] has one run.
///
/// # Errors
///
/// There is no machine, or none to its end.
pub fn go_on(order: restore::GoOn) -> Result<u8, Error> {
    start(&Launch::GoOn(Box::new(order)))
}

/// Does it, or has a process do it that goes on by itself; returns the exit status.
fn start(launch: &Launch) -> Result<u8, Error> {
    log::start(launch.verbosity());
    match launch.is_detached() {
        true => {
            Ok(launch::command(launch).and_then(detach::start).map_err(domain::Error::Detach)?)
        }
        false => run(launch, None),
    }
}

/// Does what another process of ours has this one do; returns the exit status.
///
/// # Errors
///
/// There is no such descriptor, or something else in it; or there is no machine, or none to its end.
pub fn carry_out(order: &Carry) -> Result<u8, Error> {
    let launch = order.read()?;
    log::start(launch.verbosity());
    let child = order.detached.then(Child::of_process).transpose();
    run(&launch, child.map_err(domain::Error::Detach)?)
}

/// Does it in this process, which is `child` if it goes on by itself.
fn run(launch: &Launch, child: Option<Child>) -> Result<u8, Error> {
    match launch {
        Launch::Run(spec) => boot(spec, child),
        Launch::GoOn(order) => restore::restore(order, child),
    }
}

/// Runs a machine that is described, from a warm start if there is one that fits; returns the exit status.
fn boot(spec: &Spec, child: Option<Child>) -> Result<u8, Error> {
    enter_directory(spec)?;
    // It starts while we read the guest's files.
    let network = network::start(spec, &guest::net(spec))?;
    let mut guest = Guest::find(spec)?;
    let key = guest.key.take();
    let result = run_domain(guest, network, spec, child);
    if let Err(Error::Machine(machine::Error::Machine(vmm::Error::Snapshot(_)))) = &result {
        // It was taken for one that fits; the next machine boots, and leaves another.
        key.iter().for_each(warm::forget);
        start_cold(spec);
    }
    result
}

/// Start once more, to boot: nobody has seen anything of us yet. Who has detached is waited for, and cannot.
fn start_cold(spec: &Spec) {
    if spec.boot.cold || spec.life.detached {
        return;
    }
    let mut spec = spec.clone();
    spec.boot.cold = true;
    // If that fails, it is said why there was no warm start.
    if let Ok(mut command) = launch::command(&Launch::Run(Box::new(spec))) {
        let _ = command.exec();
    }
}

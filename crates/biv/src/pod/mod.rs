//! `biv pod`: the verbs about pods. What they have in common with those about domains is in [`crate::life`].

use api::client::Client;
use api::pod::{Inspection, Record};
use api::{Entry, Registry, status};
use domain::OtherProcess;
use domain::run::launch::{self, Carry};
use pods::PodSpec;
use session::detach::{self, Child};
use session::say;

use crate::cli::pod::{Inspect, PodAction};
use crate::life::{self, ps as table};
use crate::print;

mod ps;

/// The processes of this program that keep detached pods.
pub const PROCESSES: &[OtherProcess] = &[OtherProcess { kind: KIND, run: keep }];

/// Their kind.
const KIND: &str = "pod";

/// Why a verb did not do what it was to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What is not particular to pods.
    #[error(transparent)]
    Life(#[from] life::Error),
    /// A pod.
    #[error(transparent)]
    Pod(#[from] pods::Error),
    /// The process that is to go on.
    #[error("cannot detach: {0}")]
    Detach(std::io::Error),
}

/// `biv pod`; returns the exit status.
///
/// # Errors
///
/// It could not be done.
pub fn pod(action: PodAction) -> Result<u8, Error> {
    let done = match action {
        PodAction::Run(arguments) => return run(&arguments.into_spec()),
        PodAction::Exec(arguments) => return Ok(life::exec::<Record>(&arguments.into())?),
        PodAction::Attach(arguments) => return Ok(life::attach::<Record>(&arguments.into())?),
        PodAction::Ps(arguments) => ps::ps(&arguments),
        PodAction::Inspect(arguments) => inspect(&arguments),
        PodAction::Logs(arguments) => life::logs::<Record>(&arguments.into()),
        PodAction::Stop(arguments) => life::stop::<Record>(&arguments.into()),
        PodAction::Kill(arguments) => life::kill::<Record>(&arguments.into()),
        PodAction::Wait(arguments) => life::wait::<Record>(&arguments.into()),
        PodAction::Rm(arguments) => life::rm::<Record>(&arguments.into()),
    };
    Ok(done.map(|()| status::SUCCESS)?)
}

/// Keeps the pod, in this process or in one that goes on by itself.
fn run(spec: &PodSpec) -> Result<u8, Error> {
    if !spec.detached {
        return Ok(pods::run(spec, None)?);
    }
    let started = launch::command_of(KIND, spec, true, &spec.args).and_then(detach::start);
    started.map_err(Error::Detach)
}

/// What a process does that keeps a detached pod; returns its exit status.
fn keep(order: &Carry) -> u8 {
    let kept = || -> Result<u8, Error> {
        let spec: PodSpec = order.read().map_err(Error::Detach)?;
        let child = order.detached.then(Child::of_process).transpose().map_err(Error::Detach)?;
        Ok(pods::run(&spec, child)?)
    };
    kept().unwrap_or_else(|error| {
        say::say(&error.to_string());
        status::FAILURE
    })
}

/// What a pod that lives says of itself.
fn ask(entry: &Entry<Record>) -> Option<Inspection> {
    Client::connect(entry).ok()?.get("/v1/pod").ok()
}

/// `biv pod inspect`.
fn inspect(arguments: &Inspect) -> Result<(), life::Error> {
    let registry = Registry::of_pods()?;
    let mut all = Vec::new();
    for name in &arguments.names {
        let entry = registry.find(name)?;
        all.push(match ask(&entry) {
            Some(inspection) => serde_json::to_value(inspection).map_err(std::io::Error::other)?,
            None => {
                let (state, reason) = (table::state_of_ended(&entry), table::reason(&entry));
                serde_json::json!({ "record": entry.record, "state": state, "reason": reason })
            }
        });
    }
    Ok(print::json(&all)?)
}

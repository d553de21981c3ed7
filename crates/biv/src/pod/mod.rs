//! `biv pod`: the verbs about pods. What they have in common with those about domains is in [`crate::life`].

use api::pod::Record;
use api::status;
use domain::run::launch::{self, Carry};
use domain::{OtherProcess, OtherTask};
use pods::PodSpec;
use session::detach::{self, Child};
use session::say;

use crate::cli::pod::{Pod, PodAction};
use crate::life;

mod checkpoint;
mod line;
mod machine;
mod migrate;
mod network;
mod program;
mod ps;
mod trunk;

pub use network::network;

/// The processes of this program that keep detached pods, and that read images.
pub const PROCESSES: &[OtherProcess] = &[
    OtherProcess { kind: KIND, task: OtherTask::Carry(keep) },
    OtherProcess {
        kind: pods::reader::KIND,
        task: OtherTask::Serve(c"biv reader", pods::reader::serve),
    },
];

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
    /// A pod that was to move.
    #[error(transparent)]
    Move(#[from] migrate::Error),
    /// A machine.
    #[error(transparent)]
    Machine(#[from] machine::Error),
    /// A network.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// What is typed makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The process that is to go on.
    #[error("cannot detach: {0}")]
    Detach(std::io::Error),
}

/// `biv pod`; returns the exit status.
///
/// # Errors
///
/// It could not be done.
pub fn pod(Pod { machine, action }: Pod) -> Result<u8, Error> {
    match (machine, &action) {
        (None, _) => {}
        (Some(machine), PodAction::Migrate(arguments)) if arguments.to == migrate::HERE => {
            migrate::fetch(&machine, arguments)?;
            return Ok(status::SUCCESS);
        }
        (Some(machine), _) => return Ok(machine::pod(&machine, &action)?),
    }
    let done = match action {
        PodAction::Run(arguments) => {
            return run(&arguments.into_spec().map_err(Error::Usage)?);
        }
        PodAction::Restart(arguments) => {
            return run(&arguments.into_spec().map_err(Error::Usage)?);
        }
        PodAction::Checkpoint(arguments) => checkpoint::checkpoint(&arguments),
        PodAction::Migrate(arguments) => {
            migrate::migrate(&arguments)?;
            Ok(())
        }
        PodAction::Receive(arguments) => {
            migrate::receive(&arguments)?;
            Ok(())
        }
        PodAction::Network(arguments) => {
            network::network(arguments.action)?;
            Ok(())
        }
        PodAction::Freeze(arguments) => checkpoint::freeze(&arguments.which),
        PodAction::Thaw(arguments) => checkpoint::thaw(&arguments.which),
        PodAction::Exec(arguments) => return Ok(life::exec::<Record>(&arguments.into())?),
        PodAction::Attach(arguments) => return Ok(life::attach::<Record>(&arguments)?),
        PodAction::Ps(arguments) => ps::ps(&arguments),
        PodAction::Inspect(arguments) => life::inspect::<Record>(&arguments),
        PodAction::Logs(arguments) => life::logs::<Record>(&arguments.into()),
        PodAction::Stop(arguments) => life::stop::<Record>(&arguments),
        PodAction::Kill(arguments) => life::kill::<Record>(&arguments),
        PodAction::Wait(arguments) => life::wait::<Record>(&arguments),
        PodAction::Rm(arguments) => life::rm::<Record>(&arguments),
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

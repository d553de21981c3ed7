//! The verbs about existing domains. Each looks into the registry, and sends requests to the domain
//! itself if it lives.

use std::io;

use serde_json::Value;

use crate::cli::domains as cli;
use crate::cli::domains::Which;
use crate::print;
use api::client::{self, Client};
use api::v1::{self, Inspection};
use api::{Entry, Kind, Name, Record, Registry, registry};

mod again;
mod cp;
mod ending;
mod exec;
mod join;
mod logs;
mod named;
pub(crate) mod ps;
pub(crate) mod snapshot;
mod stats;

pub use again::{rename, restart, start};
pub use cp::cp;
pub use ending::{kill, rm, stop};
pub use exec::{exec, top};
pub use join::{attach, console};
pub use logs::logs;
pub use named::Named;
use named::{ask, path};
pub use ps::ps;
pub use snapshot::snapshot;
pub(crate) use stats::Group;
pub use stats::stats;

/// The number of SIGKILL, which is nothing that a command is sent.
const KILL: u8 = 9;

/// Why a verb did not do what it was to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// A domain.
    #[error(transparent)]
    Domain(#[from] client::Error),
    /// Standard output, most likely.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A command in it.
    #[error(transparent)]
    Session(#[from] session::Error),
    /// It does not even die.
    #[error("cannot kill the process of {0} {1}")]
    Undying(Kind, Name),
    /// An audit has found something: a fault of ours.
    #[error("domain {0}: {1} counts of page frames differ")]
    Differences(Name, usize),
    /// There is no log.
    #[error(
        "{0} {1} has no log: only {0}s started with --detach have one; its output went to the \
         terminal or the files of its {program} run",
        program = .0.program()
    )]
    NoLog(Kind, Name),
    /// What is to be copied, or where to.
    #[error("exactly one of FROM and TO must be NAME:PATH, a path in a domain")]
    TwoEnds,
    /// An archive is nothing for a terminal.
    #[error("refusing to write an archive to a terminal; redirect standard output")]
    Terminal,
    /// Files here.
    #[error("{0}")]
    Files(String),
    /// Files in a guest.
    #[error("domain {0}: {1}")]
    FilesInGuest(Name, String),
    /// Its guest has gone.
    #[error("the domain ended before everything was copied")]
    Lost,
    /// A snapshot is no stream.
    #[error(
        "cannot write a snapshot or an image to standard output; name a file (./- for a file \
         called -)"
    )]
    NoStream,
    /// Where a snapshot is to go.
    #[error("cannot write {path}: {error}", path = path.display())]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The key that vouches for a snapshot.
    #[error(transparent)]
    Seal(#[from] domain::seal::Error),
    /// What was asked for has no meaning there.
    #[error("domain {0} is not a paravirtual domain (biv run --xen)")]
    NotParavirtual(Name),
    /// Its network.
    #[error(transparent)]
    Network(#[from] domain::network::Error),
    /// One that cannot be started again.
    #[error("domain {0} went on from a snapshot: restore that again with `biv restore`")]
    NoDescription(Name),
    /// One whose description cannot be used any more.
    #[error("cannot start domain {0}: {1}")]
    Start(Name, String),
    /// One of which nothing is there when it has ended.
    #[error(
        "domain {0} was not started with --detach, or with --rm: there is no starting it again"
    )]
    NotKept(Name),
    /// One that did not get so far; it has said why.
    #[error("domain {0} did not start: status {1}")]
    NotStarted(Name, u8),
    /// Several of them.
    #[error("{0}")]
    Several(String),
}

/// `biv inspect`.
pub fn inspect<R: Named>(arguments: &cli::Inspect) -> Result<(), Error> {
    let registry = R::registry()?;
    let mut all = Vec::new();
    for name in &arguments.names {
        let entry = registry.find(name)?;
        all.push(match ask(&entry) {
            Some(inspection) => {
                let mut said = serde_json::to_value(inspection).map_err(io::Error::other)?;
                // It may have had another name when it was started.
                said["record"]["name"] = entry.name.as_str().into();
                said
            }
            None => {
                let state = ps::state_of_ended(&entry);
                let reason = ps::reason(&entry);
                serde_json::json!({ "record": entry.record, "state": state, "reason": reason })
            }
        });
    }
    Ok(print::json(&all)?)
}

/// The names of those that are meant: those that are named, or all of which something holds.
fn names_of<R: Named>(
    registry: &Registry<R>,
    which: &Which,
    is_meant: impl Fn(&Entry<R>) -> bool,
) -> Result<Vec<String>, Error> {
    if !which.all {
        return Ok(which.names.clone());
    }
    let entries = registry.list()?;
    let meant = entries.iter().filter(|entry| is_meant(entry));
    Ok(meant.map(|entry| entry.name.to_string()).collect())
}

/// Does it to those that are named, or to all that live, and fails in the end if it did not go well with one.
pub(crate) fn for_each<R: Named>(
    which: &Which,
    act: impl Fn(&Registry<R>, &Entry<R>) -> Result<(), Error>,
) -> Result<(), Error> {
    for_those(which, |entry| entry.alive, act)
}

/// The same to those that are named, or to all that `is_meant` is true of.
fn for_those<R: Named>(
    which: &Which,
    is_meant: impl Fn(&Entry<R>) -> bool,
    act: impl Fn(&Registry<R>, &Entry<R>) -> Result<(), Error>,
) -> Result<(), Error> {
    let registry = R::registry()?;
    let mut failures = Vec::new();
    for name in names_of(&registry, which, is_meant)? {
        let done = registry.find(&name).map_err(Error::from).and_then(|it| act(&registry, &it));
        match done {
            Err(Error::Io(error)) => return Err(error.into()),
            Err(error) => failures.push(error),
            Ok(()) => {}
        }
    }
    all_of(failures)
}

/// All that has failed, as one failure.
fn all_of(mut failures: Vec<Error>) -> Result<(), Error> {
    match failures.len() {
        0 => Ok(()),
        1 => Err(failures.remove(0)),
        _ => {
            let lines: Vec<String> = failures.iter().map(ToString::to_string).collect();
            Err(Error::Several(lines.join("\nbiv: ")))
        }
    }
}

/// `biv balloon`.
pub fn balloon(arguments: &cli::Balloon) -> Result<(), Error> {
    let entry = Registry::open()?.find(&arguments.name)?;
    let has: v1::Statistics = Client::connect(&entry)?.get("/v1/domain/statistics")?;
    let size = v1::BalloonSize { memory: arguments.size.min(has.memory) };
    Client::connect(&entry)?.put::<Inspection>("/v1/domain/balloon", &size)?;
    Ok(())
}

/// `biv pause`.
pub fn pause(arguments: &cli::Pause) -> Result<(), Error> {
    for_each::<Record>(&arguments.which, |_, entry| post(entry, "/v1/domain/pause"))
}

/// `biv resume`.
pub fn resume(arguments: &cli::Resume) -> Result<(), Error> {
    for_each::<Record>(&arguments.which, |_, entry| post(entry, "/v1/domain/resume"))
}

fn post(entry: &Entry, path: &str) -> Result<(), Error> {
    Client::connect(entry)?.post::<Inspection>(path, &Value::Null)?;
    Ok(())
}

/// `biv wait`.
pub fn wait<R: Named>(arguments: &cli::Wait) -> Result<(), Error> {
    for_each::<R>(&arguments.which, |registry, entry| {
        Ok(print::text(&format!("{}\n", status_of(registry, entry)?))?)
    })
}

/// The status with which one ends, once it has.
pub(crate) fn status_of<R: Named>(registry: &Registry<R>, entry: &Entry<R>) -> io::Result<u8> {
    entry.wait()?;
    let ended = registry.find(entry.name.as_str()).ok().and_then(|entry| entry.record);
    let status = ended.and_then(|record| Some(record.ending()?.status));
    // One that was killed could not say so.
    Ok(status.unwrap_or(api::status::of_signal(KILL)))
}

//! The verbs that end domains, and pods: `stop`, `kill` and `rm`.
//!
//! Of many domains, all are told at once, and each has the whole time that one has: a domain that does not answer holds
//! up no other. Directories are removed one after the other, since that takes the registry's lock.

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use super::{Error, KILL, Named, all_of, names_of, path};
use crate::cli::domains as cli;
use api::client::Client;
use api::v1;
use api::{Entry, Registry, registry};
use domain::say::say;

/// How long a machine may take to end that was told to, before its process is killed.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(2);

/// How long a process may take to end that was killed: it gives back its memory, and many may do that at once.
const KILLED_PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether a supervisor has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// Domains that are told at once. Each takes three of a process's descriptors, of which there are 1024 as a rule.
const AT_ONCE_MAX: usize = 128;

/// `biv stop`.
pub fn stop<R: Named>(arguments: &cli::Stop) -> Result<(), Error> {
    let patience = Duration::from_secs(arguments.time);
    let registry = R::registry()?;
    let names = names_of(&registry, &arguments.which, Entry::is_running)?;
    all_done(at_once(&registry, &names, |entry| stop_one(entry, patience)))
}

/// Stops one, which has so long to shut down.
pub(super) fn stop_one<R: Named>(entry: &Entry<R>, patience: Duration) -> Result<(), Error> {
    for_good(entry, |entry| {
        let end_of_patience = Instant::now() + patience;
        let asked = Client::connect(entry)?.post::<Value>(&path::<R>("stop"), &Value::Null);
        let left = end_of_patience.saturating_duration_since(Instant::now());
        // One that does not answer is not asked for long.
        let why = match asked {
            Ok(_) if entry.wait_for(left) => return Ok(()),
            Ok(_) => format!("did not end by itself in {} seconds", patience.as_secs()),
            Err(error) => format!("could not be asked to end ({error})"),
        };
        end(entry)?;
        // Whoever asked it to end believes that it has written everything.
        let deaf = entry.record.as_ref().map_or("", R::why_deaf);
        let (kind, name) = (R::KIND, &entry.name);
        say(&format!(
            "{kind} {name} {why} and was ended by force; what it had not written to its disks is \
             lost{deaf}"
        ));
        Ok(())
    })
}

/// Ends one by `act`, and has its supervisor, if there is one, not start it again. That is told first: one that is just
/// being started is either seen to live, or not started.
fn for_good<R: Named>(
    entry: &Entry<R>,
    act: impl Fn(&Entry<R>) -> Result<(), Error>,
) -> Result<(), Error> {
    if !entry.is_supervised() {
        return act(entry);
    }
    entry.mark_stopped()?;
    if entry.lives() {
        act(entry)?;
    }
    let end = Instant::now() + END_PATIENCE;
    while entry.is_supervised() && Instant::now() < end {
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// `biv kill`.
pub fn kill<R: Named>(arguments: &cli::Kill) -> Result<(), Error> {
    let registry = R::registry()?;
    let names = names_of(&registry, &arguments.which, Entry::is_running)?;
    all_done(at_once(&registry, &names, |entry| {
        if arguments.signal == KILL {
            return for_good(entry, end);
        }
        let kill = v1::Kill { signal: Some(arguments.signal) };
        Client::connect(entry)?.post::<Value>(&path::<R>("kill"), &kill)?;
        Ok(())
    }))
}

/// `biv rm`.
pub fn rm<R: Named>(arguments: &cli::Rm) -> Result<(), Error> {
    let registry = R::registry()?;
    let is_removed = |entry: &Entry<R>| arguments.force || !entry.alive;
    let names = names_of(&registry, &arguments.which, is_removed)?;
    let ended = at_once(&registry, &names, |entry| {
        if arguments.force && entry.is_running() {
            for_good(entry, end)?;
        }
        Ok((entry.name.clone(), entry.alive))
    });
    let remove = |(name, was_alive)| match registry.remove(&name) {
        // It was not to be kept, and somebody else has swept.
        Err(registry::Error::Unknown(..)) if was_alive => Ok(()),
        other => Ok(other?),
    };
    all_done(ended.into_iter().map(|ended| ended.and_then(remove)).collect())
}

/// Do it to all of them, at the same time; what came of it, in the order of the names.
fn at_once<R: Named, T: Send>(
    registry: &Registry<R>,
    names: &[String],
    act: impl Fn(&Entry<R>) -> Result<T, Error> + Sync,
) -> Vec<Result<T, Error>> {
    let act = |name: &String| registry.find(name).map_err(Error::from).and_then(|it| act(&it));
    let together = |names: &[String]| -> Vec<_> {
        thread::scope(|scope| {
            let begin = |name| thread::Builder::new().spawn_scoped(scope, move || act(name));
            let begun: Vec<_> = names.iter().map(|name| (name, begin(name))).collect();
            let done = begun.into_iter().map(|(name, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // The host has no thread for it.
                Err(_) => act(name),
            });
            done.collect()
        })
    };
    names.chunks(AT_ONCE_MAX).flat_map(together).collect()
}

/// Whether all went well, and what did not.
fn all_done(results: Vec<Result<(), Error>>) -> Result<(), Error> {
    all_of(results.into_iter().filter_map(Result::err).collect())
}

/// Ends a machine, and its process if that does not end with it.
fn end<R: Named>(entry: &Entry<R>) -> Result<(), Error> {
    let client = Client::connect(entry)?;
    let process = client.process();
    let told = client.post::<Value>(&path::<R>("kill"), &v1::Kill::default());
    if told.is_ok() && entry.wait_for(END_PATIENCE) {
        return Ok(());
    }
    // As long as the lock is held, the number is that of the process that listens.
    if let Some(process) = process
        && let Ok(process) = pidfd_open(process, PidfdFlags::empty())
        && entry.lives()
    {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    match entry.wait_for(KILLED_PATIENCE) {
        true => Ok(()),
        false => Err(Error::Undying(R::KIND, entry.name.clone())),
    }
}

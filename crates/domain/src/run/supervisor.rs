//! The process that starts a domain again when it has ended (`biv run --restart`).
//!
//! There is no daemon. The process that `biv run --detach` starts does not become the domain but its parent: it starts
//! the domain as a process of its own, waits for that, and starts it again by its description, with pauses that grow.
//!
//! What rules it:
//!
//! 1. *The domain is the domain.* It has the name, the lock and the socket, as without a supervisor. All that tells of
//!    a supervisor is a lock on a file in the domain's directory, which ends with the supervisor.
//! 2. *Whoever stops a domain is obeyed.* `biv stop` marks the domain before it looks whether that lives, and a domain
//!    that is started by its supervisor looks for the mark after it has taken the lock by which it lives
//!    ([`api::Registry::claim_again`]). So one of both notices the other.
//! 3. *It grants nothing.* It has the description from whoever started it, and takes nothing from the domain's process
//!    but its status, which decides no more than whether there is another start.
//! 4. *It ends with its domain*: when that was stopped or removed, or has ended for good.

use std::time::{Duration, Instant};

use api::{Entry, Registry, StartedBy, registry};
use rustix::fs::fstat;
use session::detach::{self, Begun, Child};
use spec::Spec;

use super::launch::{self, Launch};
use crate::domain::{Beginning, Error};

/// The first pause between an end and a start.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How often a supervisor that pauses looks whether its domain has been stopped.
const LOOK: Duration = Duration::from_millis(50);

/// A domain that has run for so long has started well: the pauses, and the count of starts, begin anew.
const GOOD_RUN: Duration = Duration::from_secs(10);

/// Runs a domain again and again, as its description says; the status for whoever waits for its first start.
pub fn supervise(mut spec: Spec, beginning: Beginning, parent: Option<Child>) -> Result<u8, Error> {
    let registry = Registry::open()?;
    let mut since = Instant::now();
    let (mut process, name) = match begin(&spec, beginning)? {
        Begun::GoesOn(process, name) => (process, name),
        Begun::Ended(status) => return Ok(status),
    };
    let ours = registry.find(name.as_str())?;
    let _lock = ours.supervise()?;
    if let Some(parent) = parent {
        parent.goes_on(&name, None).map_err(Error::Detach)?;
    }
    spec.life.name = Some(name.clone());
    let (mut count, mut pause) = (0, PAUSE);
    loop {
        let status = detach::status_of(process.wait()?);
        if since.elapsed() >= GOOD_RUN {
            (count, pause) = (0, PAUSE);
        }
        // A start that fails is one more end.
        process = loop {
            if !spec.life.restart.applies(status, count) || is_ended_within(pause, &registry, &ours)
            {
                return Ok(status);
            }
            (count, pause) = (count + 1, PAUSE_MAX.min(pause * 2));
            since = Instant::now();
            match begin(&spec, Beginning::Again(StartedBy::Supervisor))? {
                Begun::GoesOn(process, _) => break process,
                Begun::Ended(_) => {}
            }
        };
    }
}

/// Starts the domain, as a process of ours.
fn begin(spec: &Spec, beginning: Beginning) -> Result<Begun, Error> {
    let launch = Launch::Run(Box::new(spec.clone()), beginning);
    launch::command(&launch).and_then(detach::begin).map_err(Error::Detach)
}

/// Whether the domain is stopped or gone before a pause is over.
fn is_ended_within(pause: Duration, registry: &Registry, ours: &Entry) -> bool {
    let end = Instant::now() + pause;
    loop {
        if ours.is_marked_stopped() || is_gone(registry, ours) {
            return true;
        }
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return false,
            left => std::thread::sleep(left.min(LOOK)),
        }
    }
}

/// Whether it has been removed. Another may have its name.
fn is_gone(registry: &Registry, ours: &Entry) -> bool {
    let identity =
        |entry: &Entry| fstat(&entry.directory).map(|found| (found.st_dev, found.st_ino));
    match registry.find(ours.name.as_str()) {
        Ok(found) => identity(&found) != identity(ours),
        Err(error) => matches!(error, registry::Error::Unknown(..)),
    }
}

//! What a service waits for before it starts: that others are fit for work, or have done theirs.
//!
//! Nobody asks afterwards: a machine that is not healthy any more runs on as it is.

use std::io::{self, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use api::Registry;
use compose::{Health, When};
use spec::Name;

use super::error::Error;
use super::machines::{found, program};
use crate::life::status_of;

/// How often it is looked whether a test has ended.
const GLANCE: Duration = Duration::from_millis(20);

/// A service that another waits for.
pub struct Needed<'a> {
    /// Its name.
    pub service: &'a Name,
    /// Its machine.
    pub machine: &'a Name,
    /// What is to have become of it.
    pub when: When,
    /// How it is found out whether it is fit for work.
    pub health: Option<&'a Health>,
}

impl Needed<'_> {
    /// Waits until it is so.
    ///
    /// # Errors
    ///
    /// It will not be.
    pub fn wait(&self, registry: &Registry) -> Result<(), Error> {
        match (self.when, self.health) {
            (When::ServiceHealthy, Some(health)) => self.wait_until_healthy(registry, health),
            (When::ServiceCompletedSuccessfully, _) => self.wait_until_completed(registry),
            _ => Ok(()),
        }
    }

    fn wait_until_healthy(&self, registry: &Registry, health: &Health) -> Result<(), Error> {
        let mut words = vec!["exec", self.machine.as_str(), "--"];
        words.extend(health.test.iter().map(String::as_str));
        let start = Instant::now();
        let mut is_told = false;
        loop {
            let status = ended_within(program(&words)?, health.timeout).map_err(Error::Program)?;
            if status.is_some_and(|status| status.success()) {
                return Ok(());
            }
            let lives = found(registry, self.machine)?.is_some_and(|entry| entry.is_running());
            let service = || self.service.clone();
            if !lives {
                return Err(Error::Ended(service()));
            }
            if start.elapsed() >= health.patience {
                let how = status.map_or("takes too long".to_owned(), |it| format!("ends: {it}"));
                return Err(Error::Unhealthy(service(), how));
            }
            if !std::mem::replace(&mut is_told, true) {
                // Whoever does not hear of it waits all the same.
                let _ = writeln!(io::stderr(), "biv: waiting until {} is healthy", self.machine);
            }
            thread::sleep(health.pause);
        }
    }

    fn wait_until_completed(&self, registry: &Registry) -> Result<(), Error> {
        let Some(entry) = found(registry, self.machine)? else {
            return Err(Error::Ended(self.service.clone()));
        };
        match status_of(registry, &entry).map_err(Error::Wait)? {
            0 => Ok(()),
            status => Err(Error::Failed(self.service.clone(), status)),
        }
    }
}

/// How a program ends, if it takes no longer than that; otherwise it is killed. Nobody sees what it says.
fn ended_within(mut command: Command, span: Duration) -> io::Result<Option<ExitStatus>> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let start = Instant::now();
    while start.elapsed() < span {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(GLANCE);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_its_time() {
        let shell = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            command
        };
        let long = Duration::from_secs(60);
        let status = |script| ended_within(shell(script), long).unwrap().unwrap().code();
        assert_eq!((status("exit 0"), status("exit 7")), (Some(0), Some(7)));
        let short = Duration::from_millis(50);
        assert_eq!(ended_within(shell("exec sleep 60"), short).unwrap(), None);
    }
}

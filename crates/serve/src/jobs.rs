//! Jobs: what takes longer than a request should. They are in memory only, and what they have begun goes on without
//! them: a machine that was made is in the registry.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::record::now;
use locks::Unpoisoned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use utoipa::ToSchema;

use crate::activity::Activity;
use crate::error::Error;
use crate::limits::{JOBS_MAX, RUNNING_JOBS_MAX};

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A domain is made and started.
    Create,
    /// One that has ended is started.
    Start,
    /// One is stopped.
    Stop,
    /// A snapshot of one is written.
    Snapshot,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// It runs.
    Running,
    /// It is done.
    Done,
    /// It has failed.
    Failed,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// What it does.
    pub kind: Kind,
    /// The domain that it does that to, if it has a name already.
    pub domain: Option<String>,
    /// How far it is.
    pub state: Progress,
    /// When it began, in milliseconds since 1970.
    pub started: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// What came of it: of `create` and `start` the name of the domain, of `snapshot` what was written.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// Why it has failed.
    pub error: Option<String>,
    /// What was said besides, such as that a field of a description is unknown.
    pub messages: Option<String>,
}

/// What comes of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// For programs.
    pub result: Value,
    /// The domain, if it had no name before.
    pub domain: Option<String>,
    /// For people.
    pub messages: String,
}

/// All jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    jobs: BTreeMap<u64, watch::Sender<Job>>,
}

impl Jobs {
    /// Begins one; the server does not end for idleness before it does.
    ///
    /// # Errors
    ///
    /// Too many run.
    pub fn begin(
        &self,
        activity: &Activity,
        kind: Kind,
        domain: Option<String>,
        work: impl Future<Output = Result<Outcome, Error>> + Send + 'static,
    ) -> Result<Job, Error> {
        let (job, sender) = self.table.lock().unpoisoned().add(kind, domain)?;
        let busy = activity.begin();
        tokio::spawn(async move {
            // In a task of its own, so that a panic in it is the end of the job, and no more.
            let outcome = tokio::spawn(work).await.unwrap_or(Err(Error::Ours));
            sender.send_modify(|job| job.conclude(outcome));
            drop(busy);
        });
        Ok(job)
    }

    /// All that are remembered, the oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Job> {
        let table = self.table.lock().unpoisoned();
        table.jobs.values().map(|job| job.borrow().clone()).collect()
    }

    /// One of them as it is when it has ended, or after so long.
    ///
    /// # Errors
    ///
    /// There is none.
    pub async fn wait(&self, id: u64, patience: Duration) -> Result<Job, Error> {
        let found = self.table.lock().unpoisoned().jobs.get(&id).map(watch::Sender::subscribe);
        let mut job = found.ok_or_else(|| Error::NoJob(id.to_string()))?;
        let ended = job.wait_for(|job| job.state != Progress::Running);
        // Time is up, or it is forgotten: it is told as it is.
        let _ = tokio::time::timeout(patience, ended).await;
        let now = job.borrow().clone();
        Ok(now)
    }
}

impl Table {
    fn add(
        &mut self,
        kind: Kind,
        domain: Option<String>,
    ) -> Result<(Job, watch::Sender<Job>), Error> {
        let runs = |job: &watch::Sender<Job>| job.borrow().state == Progress::Running;
        if self.jobs.values().filter(|job| runs(job)).count() >= RUNNING_JOBS_MAX {
            return Err(Error::Busy("jobs"));
        }
        while self.jobs.len() >= JOBS_MAX {
            let oldest = self.jobs.iter().find(|(_, job)| !runs(job)).map(|(id, _)| *id);
            let Some(oldest) = oldest else { break };
            self.jobs.remove(&oldest);
        }
        self.last += 1;
        let job = Job {
            id: self.last,
            kind,
            domain,
            state: Progress::Running,
            started: now(),
            ended: None,
            result: None,
            error: None,
            messages: None,
        };
        let sender = watch::Sender::new(job.clone());
        self.jobs.insert(job.id, sender.clone());
        Ok((job, sender))
    }
}

impl Job {
    fn conclude(&mut self, outcome: Result<Outcome, Error>) {
        self.ended = Some(now());
        match outcome {
            Ok(Outcome { result, domain, messages }) => {
                self.state = Progress::Done;
                self.domain = self.domain.take().or(domain);
                self.result = Some(result).filter(|result| !result.is_null());
                self.messages = Some(messages).filter(|messages| !messages.is_empty());
            }
            Err(error) => {
                self.state = Progress::Failed;
                self.error = Some(error.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_runtime<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_job_tells_what_came_of_it() {
        in_runtime(async {
            let (jobs, activity) = (Jobs::default(), Activity::default());
            let outcome =
                Outcome { result: 7.into(), domain: Some("web".into()), ..Outcome::default() };
            let job = jobs.begin(&activity, Kind::Create, None, async { Ok(outcome) });
            let job = jobs.wait(job.expect("it begins").id, LONG).await.expect("it is there");
            assert_eq!((job.state, job.result), (Progress::Done, Some(7.into())));
            assert_eq!(job.domain.as_deref(), Some("web"));
            let failing = async { Err(Error::Verb("no room".to_owned())) };
            let job = jobs.begin(&activity, Kind::Stop, None, failing).expect("it begins");
            let job = jobs.wait(job.id, LONG).await.expect("it is there");
            assert_eq!((job.state, job.error.as_deref()), (Progress::Failed, Some("no room")));
            assert!(jobs.wait(3, LONG).await.is_err());
        });
    }

    #[test]
    fn a_panic_ends_a_job_only() {
        in_runtime(async {
            let (jobs, activity) = (Jobs::default(), Activity::default());
            let work = async { panic!("a fault of ours, which a test makes") };
            let job = jobs.begin(&activity, Kind::Stop, None, work).expect("it begins");
            let job = jobs.wait(job.id, LONG).await.expect("it is there");
            assert_eq!(job.state, Progress::Failed);
        });
    }

    #[test]
    fn jobs_are_bounded() {
        in_runtime(async {
            let (jobs, activity) = (Jobs::default(), Activity::default());
            for _ in 0..JOBS_MAX + 5 {
                let job = jobs.begin(&activity, Kind::Stop, None, async { Ok(Outcome::default()) });
                jobs.wait(job.expect("it begins").id, LONG).await.expect("it is there");
            }
            assert_eq!(jobs.list().len(), JOBS_MAX);
            assert!(jobs.wait(5, LONG).await.is_err(), "the oldest are forgotten");
            for _ in 0..RUNNING_JOBS_MAX {
                let endless = std::future::pending();
                jobs.begin(&activity, Kind::Stop, None, endless).expect("it begins");
            }
            let more = jobs.begin(&activity, Kind::Stop, None, std::future::pending());
            assert!(matches!(more, Err(Error::Busy(_))));
            let job = jobs.list().pop().expect("there are some");
            let job = jobs.wait(job.id, Duration::ZERO).await.expect("it is there");
            assert_eq!(job.state, Progress::Running, "who does not wait is told how it is");
        });
    }
}

//! The requests about domains that are answered at once: from the registry, by the domain itself, or by a verb that is
//! done soon.

use std::collections::BTreeMap;
use std::panic::resume_unwind;

use api::client::Client;
use api::v1::{self, Inspection, Statistics};
use api::{End, Entry, Record, Registry, files};
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::call::{Call, blocking};
use crate::error::Error;
use crate::limits::{ASKED_AT_ONCE_MAX, DOMAIN_TIMEOUT};
use crate::reply::{self, Reply};
use crate::verb::{Verb, carry_out};

/// What is to be said of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It boots: its command has not started yet.
    Starting,
    /// It runs.
    Running,
    /// Its vCPUs are paused.
    Paused,
    /// It lives, and does not answer.
    NotAnswering,
    /// It has ended, and its supervisor is about to start it again.
    Restarting,
    /// It has ended.
    Ended,
    /// It has failed.
    Failed,
    /// Its process was killed.
    Killed,
}

impl State {
    /// All of them.
    pub const ALL: [State; 8] = [
        State::Starting,
        State::Running,
        State::Paused,
        State::NotAnswering,
        State::Restarting,
        State::Ended,
        State::Failed,
        State::Killed,
    ];
}

impl From<v1::State> for State {
    fn from(state: v1::State) -> Self {
        match state {
            v1::State::Starting => State::Starting,
            v1::State::Running => State::Running,
            v1::State::Paused => State::Paused,
        }
    }
}

/// A domain in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// If it has ended, the exit status of `biv run`.
    pub status: Option<u8>,
    /// Why it ended, if not by itself.
    pub reason: Option<String>,
    /// Its process, if it lives.
    pub pid: Option<u32>,
    /// When it was started, in milliseconds since 1970.
    pub created: u64,
    /// Processors.
    pub processors: u8,
    /// Bytes of memory.
    pub memory: u64,
    /// Whether it runs by itself.
    pub detached: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The guest's command and its arguments.
    pub command: Vec<String>,
}

/// A domain, as the registry and it itself know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Details {
    /// Its record, from when it was started.
    #[schema(value_type = Object)]
    pub record: Option<Record>,
    /// Its state.
    pub state: State,
    /// Why it ended, if not by itself.
    pub reason: Option<String>,
    /// Commands that run in it.
    pub commands: u32,
    /// Clients that are attached to the command that it was started for.
    pub watchers: u32,
    /// Clients that are attached to its console.
    pub terminals: u32,
    /// `biv`'s messages about it, at most the last 4 KiB.
    pub messages: String,
}

/// Which domains are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct ListQuery {
    /// Those, too, that have ended.
    pub all: bool,
}

/// How a domain is removed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct RemoveQuery {
    /// End it first, if it lives.
    pub force: bool,
}

/// What one that lives says of itself.
pub fn ask(entry: &Entry) -> Option<Inspection> {
    let client = Client::connect(entry).ok()?.within(DOMAIN_TIMEOUT).ok()?;
    client.get("/v1/domain").ok()
}

/// The state of one, of which this is what it says of itself if it lives.
pub fn state_of(entry: &Entry, inspection: Option<&Inspection>) -> State {
    if entry.alive {
        return inspection.map_or(State::NotAnswering, |said| said.state.into());
    }
    match entry.end() {
        _ if entry.is_supervised() => State::Restarting,
        End::Failed => State::Failed,
        End::Ended(_) => State::Ended,
        End::Killed => State::Killed,
    }
}

/// Why one ended that does not live, if it was not by itself and could be said.
pub fn reason_of(entry: &Entry) -> Option<String> {
    let ending = entry.record.as_ref()?.ending.as_ref().filter(|_| !entry.alive)?;
    ending.explanation().map(str::to_owned)
}

/// What comes of asking all of them, in their order; one that does not answer holds up few others.
pub fn at_once<T: Send>(entries: &[Entry], ask: impl Fn(&Entry) -> T + Sync) -> Vec<T> {
    let ask = &ask;
    let together = |entries: &[Entry]| -> Vec<T> {
        std::thread::scope(|scope| {
            let begin = |entry| std::thread::Builder::new().spawn_scoped(scope, move || ask(entry));
            let begun: Vec<_> = entries.iter().map(|entry| (entry, begin(entry))).collect();
            let done = begun.into_iter().map(|(entry, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // The host has no thread for it.
                Err(_) => ask(entry),
            });
            done.collect()
        })
    };
    entries.chunks(ASKED_AT_ONCE_MAX).flat_map(together).collect()
}

/// One in a list; none if its record cannot be read, which is so while it is being made.
fn summary(entry: &Entry) -> Option<Summary> {
    let record = entry.record.as_ref()?;
    let inspection = entry.alive.then(|| ask(entry)).flatten();
    Some(Summary {
        name: entry.name.to_string(),
        state: state_of(entry, inspection.as_ref()),
        status: record.ending.as_ref().filter(|_| !entry.alive).map(|ending| ending.status),
        reason: reason_of(entry),
        pid: entry.alive.then_some(record.pid),
        created: record.created,
        processors: record.processors,
        memory: record.memory,
        detached: record.detached,
        labels: record.spec.life.labels.clone(),
        command: record.command.clone(),
    })
}

/// List domains.
#[utoipa::path(get, path = "/v1/domains", params(ListQuery), responses(
    (status = 200, body = Vec<Summary>)))]
pub async fn list(call: Call) -> Result<Reply, Error> {
    let ListQuery { all } = call.query()?;
    let found = blocking(move || {
        let registry = Registry::open()?;
        // What nobody wants goes now; if it cannot, somebody else makes or removes one just now.
        let _ = registry.sweep();
        let mut entries = registry.list()?;
        entries.retain(|entry| all || entry.is_running());
        Ok(at_once(&entries, summary).into_iter().flatten().collect::<Vec<_>>())
    });
    Ok(reply::json(StatusCode::OK, &found.await?))
}

/// The properties and the state of a domain.
#[utoipa::path(get, path = "/v1/domains/{name}",
    params(("name" = String, Path, description = "Name of the domain")), responses(
    (status = 200, body = Details),
    (status = 404, description = "There is none", body = api::http::Problem)))]
pub async fn inspect(call: Call) -> Result<Reply, Error> {
    let entry = call.entry().await?;
    let details = blocking(move || {
        let said = entry.alive.then(|| ask(&entry)).flatten();
        let (state, reason) = (state_of(&entry, said.as_ref()), reason_of(&entry));
        let messages = match &said {
            Some(said) => said.messages.clone(),
            None => messages_of(&entry),
        };
        let count = |of: fn(&Inspection) -> u32| said.as_ref().map_or(0, of);
        Ok(Details {
            state,
            reason,
            commands: count(|said| said.commands),
            watchers: count(|said| said.watchers),
            terminals: count(|said| said.terminals),
            messages,
            record: entry.record,
        })
    });
    Ok(reply::json(StatusCode::OK, &details.await?))
}

fn messages_of(entry: &Entry) -> String {
    let file = files::open(&entry.directory, files::MESSAGES);
    file.map(|file| files::last_messages(&file.into())).unwrap_or_default()
}

/// The resources that a domain uses, by its own account.
#[utoipa::path(get, path = "/v1/domains/{name}/statistics",
    params(("name" = String, Path, description = "Name of the domain")), responses(
    (status = 200, body = Statistics),
    (status = 404, description = "There is none", body = api::http::Problem),
    (status = 409, description = "It does not run", body = api::http::Problem)))]
pub async fn statistics(call: Call) -> Result<Reply, Error> {
    let entry = call.entry().await?;
    let asked =
        blocking(move || Ok(Client::connect(&entry)?.get::<Statistics>("/v1/domain/statistics")?));
    Ok(reply::json(StatusCode::OK, &asked.await?))
}

/// Pause the vCPUs of a domain.
#[utoipa::path(post, path = "/v1/domains/{name}/pause",
    params(("name" = String, Path, description = "Name of the domain")), responses(
    (status = 204, description = "They are paused"),
    (status = 404, description = "There is none", body = api::http::Problem),
    (status = 409, description = "It does not run", body = api::http::Problem)))]
pub async fn pause(call: Call) -> Result<Reply, Error> {
    tell(call, "/v1/domain/pause").await
}

/// Let them go on.
#[utoipa::path(post, path = "/v1/domains/{name}/resume",
    params(("name" = String, Path, description = "Name of the domain")), responses(
    (status = 204, description = "They go on"),
    (status = 404, description = "There is none", body = api::http::Problem),
    (status = 409, description = "It does not run", body = api::http::Problem)))]
pub async fn resume(call: Call) -> Result<Reply, Error> {
    tell(call, "/v1/domain/resume").await
}

async fn tell(call: Call, path: &'static str) -> Result<Reply, Error> {
    let entry = call.entry().await?;
    blocking(move || Ok(Client::connect(&entry)?.post::<Inspection>(path, &Value::Null)?)).await?;
    Ok(done())
}

/// End a domain at once, or send its command a signal. One that a supervisor would start again stays ended.
#[utoipa::path(post, path = "/v1/domains/{name}/kill", request_body = v1::Kill,
    params(("name" = String, Path, description = "Name of the domain")), responses(
    (status = 204, description = "It has ended, or the signal was sent"),
    (status = 400, description = "No such signal", body = api::http::Problem),
    (status = 404, description = "There is none", body = api::http::Problem),
    (status = 409, description = "It does not run, or has no command", body = api::http::Problem)))]
pub async fn kill(mut call: Call) -> Result<Reply, Error> {
    let v1::Kill { signal } = call.value().await?;
    if signal.is_some_and(|signal| !(1..=64).contains(&signal)) {
        return Err(Error::Request("there is no such signal".to_owned()));
    }
    let name = call.entry().await?.name;
    carry_out(&*call.shared.program, &Verb::Kill(name, signal)).await?;
    Ok(done())
}

/// Remove what is left of a domain that has ended, with its log.
#[utoipa::path(delete, path = "/v1/domains/{name}",
    params(("name" = String, Path, description = "Name of the domain"), RemoveQuery), responses(
    (status = 204, description = "It is removed"),
    (status = 404, description = "There is none", body = api::http::Problem),
    (status = 409, description = "It lives", body = api::http::Problem)))]
pub async fn remove(call: Call) -> Result<Reply, Error> {
    let RemoveQuery { force } = call.query()?;
    let name = call.entry().await?.name;
    carry_out(&*call.shared.program, &Verb::Remove(name, force)).await?;
    Ok(done())
}

/// Nothing is to be said but that it is done.
fn done() -> Reply {
    let mut reply = Reply::new(reply::body(""));
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}

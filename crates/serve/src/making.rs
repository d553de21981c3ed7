//! The requests that begin jobs: a domain is made, started, stopped, or written into a file.

use api::{Registry, registry, v1};
use hyper::StatusCode;
use hyper::header::{HeaderValue, LOCATION};
use serde::{Deserialize, Serialize};
use serde_json::json;
use spec::Spec;
use utoipa::ToSchema;

use crate::call::{Call, Wait, blocking};
use crate::error::Error;
use crate::jobs::{Job, Kind, Outcome, Progress};
use crate::limits::STOP_MAX_SECONDS;
use crate::reply::{self, Reply};
use crate::verb::{Said, Snapshot, Verb, carry_out};

/// How a domain is stopped.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// Seconds that it may take to shut down before it is ended by force; 10 if that is left out.
    #[schema(maximum = 3600)]
    pub time: Option<u64>,
}

/// How long a domain may take to shut down if it is not said.
const STOP_SECONDS: u64 = 10;

/// Make a domain and start it, as `biv run --detach --spec` does. The body is a description of a machine
/// (docs/spec.md); whether it says so or not, the domain is detached. Relative paths in it are relative to its
/// `directory`, or to the server's current directory. The job is done when the domain's command runs.
#[utoipa::path(post, path = "/v1/domains", params(Wait),
    request_body(content = Object, description = "A description (/v1/spec.schema.json)"),
    responses(
    (status = 200, description = "The job has ended", body = Job),
    (status = 202, description = "The job has begun", body = Job),
    (status = 400, description = "It is no description", body = api::http::Problem),
    (status = 409, description = "There is a domain of that name", body = api::http::Problem)))]
pub async fn create(mut call: Call) -> Result<Reply, Error> {
    let wait: Wait = call.query()?;
    let text = call.bytes().await?;
    // Whether its parts fit together is checked by the process that is to make it.
    let mut spec = Spec::decode(&text).map_err(|error| Error::Request(error.to_string()))?;
    spec.life.detached = true;
    let name = spec.life.name.clone();
    if let Some(name) = name.clone() {
        blocking(move || must_be_free(&name)).await?;
    }
    begin(call, wait, Kind::Create, name, Verb::Create(Box::new(spec))).await
}

/// Whether a domain may have this name. It may be taken before the job takes it, which is then said there.
fn must_be_free(name: &api::Name) -> Result<(), Error> {
    let registry = Registry::open()?;
    // One that has ended and is not kept is no hindrance.
    registry.sweep()?;
    match registry.find(name.as_str()) {
        Err(registry::Error::Unknown(..)) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(entry) if entry.alive => {
            Err(registry::Error::Running(api::Kind::Domain, entry.name).into())
        }
        Ok(entry) => Err(registry::Error::Ended(api::Kind::Domain, entry.name).into()),
    }
}

/// Start a domain again that has ended, as it was started first.
#[utoipa::path(post, path = "/v1/domains/{name}/start",
    params(("name" = String, Path, description = "Name of the domain"), Wait), responses(
    (status = 200, description = "The job has ended", body = Job),
    (status = 202, description = "The job has begun", body = Job),
    (status = 404, description = "There is none", body = api::http::Problem)))]
pub async fn start(call: Call) -> Result<Reply, Error> {
    let wait: Wait = call.query()?;
    let name = call.entry().await?.name;
    begin(call, wait, Kind::Start, Some(name.clone()), Verb::Start(name)).await
}

/// Stop a domain: ask it to shut down, and end it if it does not in time.
#[utoipa::path(post, path = "/v1/domains/{name}/stop", request_body = Stop,
    params(("name" = String, Path, description = "Name of the domain"), Wait), responses(
    (status = 200, description = "The job has ended", body = Job),
    (status = 202, description = "The job has begun", body = Job),
    (status = 404, description = "There is none", body = api::http::Problem)))]
pub async fn stop(mut call: Call) -> Result<Reply, Error> {
    let wait: Wait = call.query()?;
    let Stop { time } = call.value().await?;
    let name = call.entry().await?.name;
    let seconds = time.unwrap_or(STOP_SECONDS).min(STOP_MAX_SECONDS);
    begin(call, wait, Kind::Stop, Some(name.clone()), Verb::Stop(name, seconds)).await
}

/// Write a snapshot of a domain into a file of the host's, as `biv snapshot` does.
#[utoipa::path(post, path = "/v1/domains/{name}/snapshot", request_body = Snapshot,
    params(("name" = String, Path, description = "Name of the domain"), Wait), responses(
    (status = 200, description = "The job has ended", body = Job),
    (status = 202, description = "The job has begun", body = Job),
    (status = 400, description = "The path is not absolute", body = api::http::Problem),
    (status = 404, description = "There is none", body = api::http::Problem)))]
pub async fn snapshot(mut call: Call) -> Result<Reply, Error> {
    let wait: Wait = call.query()?;
    let wanted: Snapshot = call.value().await?;
    if !wanted.file.is_absolute() {
        return Err(Error::Request("the path of the file must be absolute".to_owned()));
    }
    let name = call.entry().await?.name;
    begin(call, wait, Kind::Snapshot, Some(name.clone()), Verb::Snapshot(name, wanted)).await
}

/// Begins a job that carries out a verb, and waits for its end if that is wanted.
async fn begin(
    call: Call,
    wait: Wait,
    kind: Kind,
    name: Option<api::Name>,
    verb: Verb,
) -> Result<Reply, Error> {
    let shared = call.shared.clone();
    let work = async move { outcome(&verb, carry_out(&*shared.program, &verb).await?) };
    let (jobs, activity) = (&call.shared.jobs, &call.shared.activity);
    let job = jobs.begin(activity, kind, name.map(|name| name.to_string()), work)?;
    Ok(answer(&jobs.wait(job.id, wait.span()).await?))
}

/// What a verb that has succeeded comes to.
fn outcome(verb: &Verb, said: Said) -> Result<Outcome, Error> {
    let printed = said.printed.trim();
    let (result, domain) = match verb {
        Verb::Create(_) | Verb::Start(_) => (json!({ "domain": printed }), Some(printed.into())),
        Verb::Snapshot(..) => {
            let written: v1::Snapshot = serde_json::from_str(printed).map_err(|_| Error::Ours)?;
            (json!(written), None)
        }
        _ => (serde_json::Value::Null, None),
    };
    Ok(Outcome { result, domain, messages: said.messages })
}

/// A job as an answer, which says where it is found later.
fn answer(job: &Job) -> Reply {
    let status = match job.state {
        Progress::Running => StatusCode::ACCEPTED,
        Progress::Done | Progress::Failed => StatusCode::OK,
    };
    let mut reply = reply::json(status, job);
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/jobs/{}", job.id)) {
        reply.headers_mut().insert(LOCATION, place);
    }
    reply
}

/// The jobs that are remembered, the oldest first.
#[utoipa::path(get, path = "/v1/jobs", responses((status = 200, body = Vec<Job>)))]
pub async fn jobs(call: Call) -> Result<Reply, Error> {
    Ok(reply::json(StatusCode::OK, &call.shared.jobs.list()))
}

/// A job, when it has ended or after as long as is said.
#[utoipa::path(get, path = "/v1/jobs/{id}",
    params(("id" = u64, Path, description = "Its number"), Wait), responses(
    (status = 200, body = Job),
    (status = 404, description = "There is none", body = api::http::Problem)))]
pub async fn job(call: Call) -> Result<Reply, Error> {
    let wait: Wait = call.query()?;
    let unknown = |_| Error::NoJob(call.parameter.clone());
    let id = call.parameter.parse().map_err(unknown)?;
    Ok(reply::json(StatusCode::OK, &call.shared.jobs.wait(id, wait.span()).await?))
}

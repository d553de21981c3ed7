//! The API as a document (OpenAPI 3.1), made from the functions that answer and from their types.

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use spec::Spec;
use utoipa::{OpenApi, ToSchema};

use crate::call::Call;
use crate::error::Error;
use crate::reply::{self, Reply};
use crate::{domains, events, exec, jobs, logs, making, metrics, web};

/// The server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ping {
    /// The version of `biv`.
    pub version: String,
    /// The version of this API, as it is in paths.
    pub api: u32,
    /// The server's process.
    pub pid: u32,
}

/// Whether a server is there, and which.
#[utoipa::path(get, path = "/v1/ping", responses((status = 200, body = Ping)))]
pub async fn ping(call: Call) -> Result<Reply, Error> {
    let ping = Ping { version: call.shared.program.version(), api: 1, pid: std::process::id() };
    Ok(reply::json(StatusCode::OK, &ping))
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", responses(
    (status = 200, description = "An OpenAPI document", body = Object)))]
pub async fn openapi(_: Call) -> Result<Reply, Error> {
    Ok(reply::json(StatusCode::OK, &document()))
}

/// The schema of a description of a machine (JSON Schema 2020-12).
#[utoipa::path(get, path = "/v1/spec.schema.json", responses(
    (status = 200, description = "A JSON schema", body = Object)))]
pub async fn schema(_: Call) -> Result<Reply, Error> {
    Ok(reply::text("application/schema+json", Spec::schema()))
}

/// `biv serve`: an API that makes domains of Bivouac and controls them.
///
/// It is on a Unix socket that only its user may connect to, `$XDG_RUNTIME_DIR/bivouac/.serve` if nothing else is said.
#[derive(OpenApi)]
#[openapi(
    paths(
        ping,
        openapi,
        schema,
        metrics::metrics,
        events::events,
        making::jobs,
        making::job,
        domains::list,
        making::create,
        domains::inspect,
        domains::remove,
        domains::statistics,
        making::start,
        making::stop,
        domains::kill,
        domains::pause,
        domains::resume,
        logs::logs,
        making::snapshot,
        exec::exec,
        exec::attach,
        exec::console,
        web::page
    ),
    info(title = "Bivouac"),
    components(schemas(api::http::Problem, jobs::Progress, jobs::Kind, domains::State)),
    servers((url = "http://localhost", description = "the server's socket"))
)]
struct Document;

/// See above.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

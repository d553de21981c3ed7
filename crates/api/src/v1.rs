//! The requests that a domain answers on its control socket: one function for each path. utoipa
//! makes the OpenAPI document from them.

use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::http::{FRAMES, Problem, Request, Response};
use super::{ended, record};

pub mod toolstack;

/// The state of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It boots: its command has not started yet.
    Starting,
    /// It runs.
    Running,
    /// Its vCPUs are paused.
    Paused,
}

/// A domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Inspection {
    /// Its record, from when it was started.
    pub record: record::Record,
    /// Its state.
    pub state: State,
    /// Commands that run in it.
    pub commands: u32,
    /// Clients that are attached to the command that it was started for.
    pub watchers: u32,
    /// Clients that are attached to its console.
    pub terminals: u32,
    /// `biv`'s messages about it, at most the last 4 KiB.
    pub messages: String,
}

/// How to end it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kill {
    /// Send this signal to the domain's command; without one, end the machine at once.
    #[schema(minimum = 1, maximum = 64)]
    pub signal: Option<u8>,
}

impl Kill {
    /// What the body of a request says.
    pub(crate) fn parse(body: &[u8]) -> Result<Kill, Refusal> {
        let body: &[u8] = if body.is_empty() { b"{}" } else { body };
        let kill: Kill = serde_json::from_slice(body).map_err(|error| (400, error.to_string()))?;
        match kill.signal {
            Some(signal) if !(1..=64).contains(&signal) => {
                Err((400, "there is no such signal".to_owned()))
            }
            _ => Ok(kill),
        }
    }
}

/// Statistics of a domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Bytes of memory that it has, or may have at most where that can change.
    pub memory: u64,
    /// Bytes of memory that its guest has touched, and not given back.
    pub memory_used: u64,
    /// Its balloon.
    pub balloon: Option<Balloon>,
    /// Its processors.
    pub processors: Vec<Processor>,
    /// Commands that have been run in it.
    pub sessions: u64,
    /// Bytes that its own process has read from disks of the host.
    pub read_bytes: u64,
    /// Bytes that it has written to them.
    pub written_bytes: u64,
}

/// The guest's balloon, and the guest's own account of its memory. Each request for the statistics asks
/// the guest for its account again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Balloon {
    /// Bytes that the guest is to give.
    pub wanted: u64,
    /// Bytes that the guest has given.
    pub given: u64,
    /// Bytes of free memory that the guest has reported and the host has released, in all since the start.
    pub freed: u64,
    /// Bytes that the guest has, by its own account.
    pub guest_total: Option<u64>,
    /// Bytes of that which are unused.
    pub guest_free: Option<u64>,
    /// Bytes that the guest's programs could allocate without swapping.
    pub guest_available: Option<u64>,
    /// Bytes of the page cache.
    pub guest_caches: Option<u64>,
    /// Bytes read from the guest's swap space.
    pub guest_swapped_in: Option<u64>,
    /// Bytes written to the guest's swap space.
    pub guest_swapped_out: Option<u64>,
    /// Page faults that waited for a disk.
    pub guest_major_faults: Option<u64>,
    /// Page faults that did not wait for a disk.
    pub guest_minor_faults: Option<u64>,
}

/// The target size of a guest's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BalloonSize {
    /// Bytes that the guest keeps, of those that the machine has.
    #[schema(minimum = 1)]
    pub memory: u64,
}

/// Statistics of a vCPU since the machine was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Exits from guest code.
    pub exits: u64,
    /// Interrupts that were delivered to it.
    pub interrupts: u64,
    /// Times that it was halted.
    pub halts: u64,
}

/// How a snapshot is to be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Take {
    /// Compress the guest's memory (Zstandard).
    pub compress: bool,
}

/// A snapshot that was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// For how many milliseconds the guest was paused.
    pub paused: u64,
    /// Bytes of memory in it: those of chunks that are not all zeroes.
    pub memory: u64,
    /// Bytes of the file.
    pub file: u64,
}

/// Why a request is refused: a status and a reason.
pub type Refusal = (u16, String);

/// The domain that answers requests.
pub trait Domain {
    /// Its properties and state.
    fn inspect(&self) -> Inspection;
    /// Its statistics.
    fn statistics(&self) -> Result<Statistics, Refusal>;
    /// Ask the guest to switch itself off.
    fn stop(&mut self) -> Result<(), Refusal>;
    /// Send its command a signal, or end it.
    fn kill(&mut self, signal: Option<u8>) -> Result<(), Refusal>;
    /// Set the target of its balloon: so many bytes of memory are left to the guest.
    fn balloon(&mut self, memory: u64) -> Result<(), Refusal>;
    /// Do what a domain 0 could, if it is a domain of Xen's interface.
    fn toolstack(&mut self, ask: &toolstack::Ask) -> Result<toolstack::Reply, Refusal> {
        let _ = ask;
        Err(toolstack::none())
    }
    /// Pause its vCPUs, or resume them.
    fn pause(&mut self, paused: bool) -> Result<(), Refusal>;
    /// Whether a snapshot can be taken of it.
    fn allows_snapshots(&self) -> Result<(), Refusal>;
    /// Whether commands can be run in it now.
    fn takes_commands(&self) -> Result<(), Refusal>;
    /// Whether another client may attach to its console now.
    fn takes_terminals(&self) -> Result<(), Refusal>;
    /// Whether another client may attach to its command now.
    fn takes_watchers(&self) -> Result<(), Refusal>;
}

/// What becomes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It gets this response, and ends.
    Response(Response),
    /// It becomes a port of the hub.
    Frames,
    /// It is attached to the console.
    Console,
    /// It is attached to the first command.
    Watch,
    /// It gets its response when a snapshot has been taken.
    Snapshot(Take),
}

/// Answers a request.
pub fn answer(request: &Request, domain: &mut dyn Domain) -> Answer {
    let upgrade = request.upgrade.as_deref();
    let result = match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/v1/domain") => inspect(domain),
        ("GET", "/v1/domain/statistics") => statistics(domain),
        ("POST", "/v1/domain/stop") => stop(domain),
        ("POST", "/v1/domain/kill") => kill(domain, &request.body),
        ("PUT", "/v1/domain/balloon") => balloon(domain, &request.body),
        ("POST", "/v1/domain/toolstack") => toolstack::toolstack(domain, &request.body),
        ("POST", "/v1/domain/pause") => pause(domain),
        ("POST", "/v1/domain/resume") => resume(domain),
        ("POST", "/v1/domain/snapshot") => match snapshot(domain, &request.body) {
            Ok(take) => return Answer::Snapshot(take),
            Err(refusal) => Err(refusal),
        },
        ("POST", "/v1/domain/exec") => match exec(domain, upgrade) {
            Ok(()) => return Answer::Frames,
            Err(refusal) => Err(refusal),
        },
        ("POST", "/v1/domain/attach") => match attach(domain, upgrade) {
            Ok(()) => return Answer::Watch,
            Err(refusal) => Err(refusal),
        },
        ("POST", "/v1/domain/console") => match console(domain, upgrade) {
            Ok(()) => return Answer::Console,
            Err(refusal) => Err(refusal),
        },
        ("GET", "/v1/openapi.json") => Ok(Response::json(200, &document())),
        (_, path) if PATHS.contains(&path) => {
            Err((405, "method not allowed for this path".to_owned()))
        }
        (_, path) => Err((404, format!("there is no {path} here"))),
    };
    Answer::Response(result.unwrap_or_else(|(status, error)| Response::problem(status, error)))
}

const PATHS: &[&str] = &[
    "/v1/domain",
    "/v1/domain/statistics",
    "/v1/domain/stop",
    "/v1/domain/kill",
    "/v1/domain/balloon",
    "/v1/domain/toolstack",
    "/v1/domain/pause",
    "/v1/domain/resume",
    "/v1/domain/snapshot",
    "/v1/domain/exec",
    "/v1/domain/attach",
    "/v1/domain/console",
    "/v1/openapi.json",
];

type Result_ = Result<Response, Refusal>;

/// The domain's properties and state.
#[utoipa::path(get, path = "/v1/domain", responses((status = 200, body = Inspection)))]
fn inspect(domain: &dyn Domain) -> Result_ {
    Ok(Response::json(200, &domain.inspect()))
}

/// Its statistics.
#[utoipa::path(get, path = "/v1/domain/statistics", responses(
    (status = 200, body = Statistics),
    (status = 503, description = "It is still being built", body = Problem)))]
fn statistics(domain: &dyn Domain) -> Result_ {
    Ok(Response::json(200, &domain.statistics()?))
}

/// Ask the guest to shut down. Our init ends the commands and switches the machine off; for a guest
/// without it, the domain presses the power button. The guest decides whether and when it shuts down.
#[utoipa::path(post, path = "/v1/domain/stop", responses(
    (status = 202, description = "It has been asked", body = Inspection),
    (status = 503, description = "It is still starting", body = Problem)))]
fn stop(domain: &mut dyn Domain) -> Result_ {
    domain.stop()?;
    Ok(Response::json(202, &domain.inspect()))
}

/// Send its command a signal, or end the machine at once.
#[utoipa::path(post, path = "/v1/domain/kill", request_body = Kill, responses(
    (status = 202, description = "Sent", body = Inspection),
    (status = 400, description = "No such signal", body = Problem),
    (status = 409, description = "It has no command, or is paused", body = Problem),
    (status = 503, description = "It is still starting", body = Problem)))]
fn kill(domain: &mut dyn Domain, body: &[u8]) -> Result_ {
    domain.kill(Kill::parse(body)?.signal)?;
    Ok(Response::json(202, &domain.inspect()))
}

/// Set the target size of the guest's memory. The guest gives the rest back as it can, or takes memory back;
/// the statistics tell how far it is. A guest without a driver for its balloon does neither.
#[utoipa::path(put, path = "/v1/domain/balloon", request_body = BalloonSize, responses(
    (status = 202, description = "It has been told", body = Inspection),
    (status = 400, description = "No such size", body = Problem),
    (status = 409, description = "It has no balloon", body = Problem),
    (status = 503, description = "It is still being built", body = Problem)))]
fn balloon(domain: &mut dyn Domain, body: &[u8]) -> Result_ {
    let size: BalloonSize =
        serde_json::from_slice(body).map_err(|error| (400, error.to_string()))?;
    domain.balloon(size.memory)?;
    Ok(Response::json(202, &domain.inspect()))
}

/// Pause its vCPUs.
#[utoipa::path(post, path = "/v1/domain/pause", responses(
    (status = 200, description = "They do", body = Inspection),
    (status = 503, description = "It is still being built, or they do not", body = Problem)))]
fn pause(domain: &mut dyn Domain) -> Result_ {
    domain.pause(true)?;
    Ok(Response::json(200, &domain.inspect()))
}

/// Resume its vCPUs.
#[utoipa::path(post, path = "/v1/domain/resume", responses(
    (status = 200, description = "They do", body = Inspection),
    (status = 503, description = "It is still being built", body = Problem)))]
fn resume(domain: &mut dyn Domain) -> Result_ {
    domain.pause(false)?;
    Ok(Response::json(200, &domain.inspect()))
}

/// Write a snapshot of it into an empty file, whose descriptor comes with the request (`SCM_RIGHTS`,
/// unix(7)). The file is a snapshot only if the answer says so. It has neither the host resources of the
/// domain nor a signature: `biv snapshot` adds both.
#[utoipa::path(post, path = "/v1/domain/snapshot", request_body = Take, responses(
    (status = 200, description = "It is written", body = Snapshot),
    (status = 400, description = "There is no descriptor", body = Problem),
    (status = 409, description = "Another is being written, or it is paused", body = Problem),
    (status = 503, description = "It is still starting, or it cannot be written", body = Problem)))]
fn snapshot(domain: &dyn Domain, body: &[u8]) -> Result<Take, Refusal> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    let take: Take = serde_json::from_slice(body).map_err(|error| (400, error.to_string()))?;
    domain.allows_snapshots()?;
    Ok(take)
}

/// Run a command in the guest. The connection becomes one of frames (`Upgrade: bivouac-frames`), as
/// `guest/protocol` defines them: the domain sends its greeting, the client an order, and so on. The order
/// may also be to pack files to standard output, or to unpack them from standard input.
#[utoipa::path(post, path = "/v1/domain/exec", responses(
    (status = 101, description = "What follows are frames"),
    (status = 409, description = "The guest has no init of ours, or is paused", body = Problem),
    (status = 426, description = "The request asks for no upgrade", body = Problem),
    (status = 503, description = "It is still starting, or too many commands run",
        body = Problem)))]
fn exec(domain: &dyn Domain, upgrade: Option<&str>) -> Result<(), Refusal> {
    must_ask_for_frames(upgrade)?;
    domain.takes_commands()
}

/// Attach to the command that the domain was started for. The connection becomes one of frames as that of
/// `exec`, without an order: the domain sends the command's output from now on, and how it ended. The client
/// may send input, signals and window sizes, beside other clients. The domain disconnects a client that does
/// not take its output.
#[utoipa::path(post, path = "/v1/domain/attach", responses(
    (status = 101, description = "What follows are frames"),
    (status = 409, description = "The guest has no init of ours, or is paused", body = Problem),
    (status = 426, description = "The request asks for no upgrade", body = Problem),
    (status = 503, description = "It does not run, or too many clients are attached to it",
        body = Problem)))]
fn attach(domain: &dyn Domain, upgrade: Option<&str>) -> Result<(), Refusal> {
    must_ask_for_frames(upgrade)?;
    domain.takes_watchers()
}

/// Attach to the console. The connection becomes one of frames as that of `attach`: standard output is the
/// console's last output, and then its further output; the client's input is typed on the console.
#[utoipa::path(post, path = "/v1/domain/console", responses(
    (status = 101, description = "What follows are frames"),
    (status = 409, description = "It has no console, or is paused", body = Problem),
    (status = 426, description = "The request asks for no upgrade", body = Problem),
    (status = 503, description = "Too many are at it", body = Problem)))]
fn console(domain: &dyn Domain, upgrade: Option<&str>) -> Result<(), Refusal> {
    must_ask_for_frames(upgrade)?;
    domain.takes_terminals()
}

pub(crate) fn must_ask_for_frames(upgrade: Option<&str>) -> Result<(), Refusal> {
    match upgrade {
        Some(upgrade) if upgrade.eq_ignore_ascii_case(FRAMES) => Ok(()),
        _ => Err((426, format!("the request must have the header Upgrade: {FRAMES}"))),
    }
}

/// A domain of Bivouac.
///
/// One process, one machine, one socket: `$XDG_RUNTIME_DIR/bivouac/NAME/control`. Each connection is for
/// one request.
#[derive(OpenApi)]
#[openapi(
    paths(
        inspect,
        statistics,
        stop,
        kill,
        balloon,
        toolstack::toolstack,
        pause,
        resume,
        snapshot,
        exec,
        attach,
        console
    ),
    components(schemas(record::Record, ended::Ended, State, Problem)),
    servers((url = "http://domain", description = "the domain's socket"))
)]
struct Document;

/// The OpenAPI document.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

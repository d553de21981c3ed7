//! Pods: the record of a pod, and the requests that its keeper answers on the control socket in its directory.
//!
//! | request | meaning |
//! | --- | --- |
//! | `GET /v1/pod` | [`Inspection`] |
//! | `POST /v1/pod/stop` | SIGTERM for its commands |
//! | `POST /v1/pod/kill` | a signal for its first command ([`Kill`]); without one, its end |
//! | `POST /v1/pod/freeze` | stops all its processes |
//! | `POST /v1/pod/thaw` | lets them go on |
//! | `POST /v1/pod/checkpoint` | writes an image ([`Checkpoint`]) into the file that comes with it: [`Checkpointed`] |
//! | `POST /v1/pod/exec` | becomes a connection of frames: an order, and the command's streams |
//! | `POST /v1/pod/attach` | becomes one to the first command |
//!
//! The frames are those of a domain (`guest/protocol`).

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use spec::{Name, Published};

use super::ended::Ended;
use super::http::{Request, Response};
use super::kept::{Kept, Kind};
use super::networks::Subnet;
use super::v1::{Kill, Refusal, must_ask_for_frames};

/// The version of the record that this code writes; it reads no other.
pub const VERSION: u32 = 1;

/// What is known of a pod from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The version of this record.
    pub version: u32,
    /// Its name.
    pub name: Name,
    /// The process of its keeper, on the host.
    pub pid: u32,
    /// When it was started, in milliseconds since 1970.
    pub created: u64,
    /// Whether it runs by itself (`biv pod run --detach`).
    pub detached: bool,
    /// Whether what is here stays when it has ended, until `biv pod rm`.
    pub kept: bool,
    /// Its first command and the arguments.
    pub command: Vec<String>,
    /// Whether that has a terminal.
    pub has_terminal: bool,
    /// The directory of the host that is its root.
    pub root: String,
    /// Whether it may write to that directory.
    pub is_writable: bool,
    /// The host name in it.
    pub hostname: String,
    /// Its network; none: it has a loopback interface only.
    #[serde(default)]
    pub network: Option<Network>,
    /// How it ended, if it has and could say so.
    pub ending: Option<Ended>,
}

/// A pod's network: it reaches what the user may reach, and the pods of the same network, if it is in one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The pod reaches the host, too: servers on its loopback interface and its other addresses, and what is link-local
    /// to it.
    pub reaches_host: bool,
    /// Ports of the host that are published.
    pub publish: Vec<Published>,
    /// Its place among the pods of a network; none: it is alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Member>,
}

/// A pod's place in a network of several ([`crate::networks`]). As long as the pod lives, no other has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The network's name.
    pub network: Name,
    /// The pod's address.
    pub address: Ipv4Addr,
    /// The network's addresses.
    pub subnet: Subnet,
    /// By what the pod is known to be the same when it is made again elsewhere.
    pub lease: String,
    /// By what the others of the network find it, if not by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<Name>,
}

impl Kept for Record {
    const KIND: Kind = Kind::Pod;
    const VERSION: u32 = VERSION;

    fn version(&self) -> u32 {
        self.version
    }

    fn set_name(&mut self, name: Name) {
        self.name = name;
    }

    fn is_kept(&self) -> bool {
        self.kept
    }

    fn ending(&self) -> Option<&Ended> {
        self.ending.as_ref()
    }
}

/// The state of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its command has not started yet.
    Starting,
    /// It runs.
    Running,
    /// Its processes are stopped (`biv pod freeze`).
    Frozen,
}

/// How an image is to be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoint {
    /// Compress memory and files (Zstandard).
    pub compress: bool,
    /// Leave the pod frozen when the image is written.
    pub stays_frozen: bool,
    /// What comes with the request is a pipe, which gets the image in the order in which it arises.
    pub streams: bool,
    /// Know from now on what the pod writes, for increments.
    pub tracked: bool,
    /// Write only what the pod has written since the last image that is `tracked` or an increment, which becomes the
    /// parent of this one.
    pub incremental: bool,
}

/// An image that was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpointed {
    /// For how many milliseconds the pod was frozen in the end; if it still is: up to when the image was written.
    pub frozen: u64,
    /// What was copied before, while it ran.
    pub rounds: Vec<Round>,
    /// Processes in it.
    pub processes: u32,
    /// Bytes of the archive of its files.
    pub files: u64,
    /// Bytes of the image.
    pub file: u64,
}

/// Memory that was copied while the pod ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Bytes of memory that were copied.
    pub copied: u64,
    /// For how many milliseconds the pod was frozen before, to note what it writes.
    pub frozen: u64,
}

/// What takes the keeper a while, and is answered when it has been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Stop all processes.
    Freeze,
    /// Let them go on.
    Thaw,
    /// Write an image.
    Checkpoint(Checkpoint),
}

/// A pod that lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspection {
    /// Its record, from when it was started.
    pub record: Record,
    /// Its state.
    pub state: State,
    /// Commands that run in it, of those that were ordered.
    pub commands: u32,
    /// Clients that are attached to its first command.
    pub watchers: u32,
    /// Messages of `biv` about it, at most the last 4 KiB.
    pub messages: String,
}

/// The keeper of a pod, as what answers requests.
pub trait Pod {
    /// Its properties and state.
    fn inspect(&self) -> Inspection;
    /// Sends its commands SIGTERM.
    fn stop(&mut self) -> Result<(), Refusal>;
    /// Sends its first command a signal, or ends it.
    fn kill(&mut self, signal: Option<u8>) -> Result<(), Refusal>;
    /// Whether commands can be run in it now.
    fn takes_commands(&self) -> Result<(), Refusal>;
    /// Whether another client may attach to its first command now.
    fn takes_watchers(&self) -> Result<(), Refusal>;
    /// Whether this can be done now.
    fn takes(&self, task: Task) -> Result<(), Refusal>;
}

/// What becomes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It gets this response, and ends.
    Response(Response),
    /// It becomes a port of the hub.
    Frames,
    /// It is attached to the first command.
    Watch,
    /// It gets its response when this has been done.
    Later(Task),
}

/// The paths there are.
const PATHS: [&str; 8] = [
    "/v1/pod",
    "/v1/pod/stop",
    "/v1/pod/kill",
    "/v1/pod/freeze",
    "/v1/pod/thaw",
    "/v1/pod/checkpoint",
    "/v1/pod/exec",
    "/v1/pod/attach",
];

/// Answers a request.
pub fn answer(request: &Request, pod: &mut dyn Pod) -> Answer {
    let upgrade = request.upgrade.as_deref();
    let result = match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/v1/pod") => Ok(Response::json(200, &pod.inspect())),
        ("POST", "/v1/pod/stop") => pod.stop().map(|()| Response::json(202, &pod.inspect())),
        ("POST", "/v1/pod/kill") => kill(pod, &request.body),
        ("POST", "/v1/pod/freeze" | "/v1/pod/thaw" | "/v1/pod/checkpoint") => {
            let task = task(request);
            match task.and_then(|task| pod.takes(task).map(|()| task)) {
                Ok(task) => return Answer::Later(task),
                Err(refusal) => Err(refusal),
            }
        }
        ("POST", "/v1/pod/exec") => {
            match must_ask_for_frames(upgrade).and_then(|()| pod.takes_commands()) {
                Ok(()) => return Answer::Frames,
                Err(refusal) => Err(refusal),
            }
        }
        ("POST", "/v1/pod/attach") => {
            match must_ask_for_frames(upgrade).and_then(|()| pod.takes_watchers()) {
                Ok(()) => return Answer::Watch,
                Err(refusal) => Err(refusal),
            }
        }
        (_, path) if PATHS.contains(&path) => {
            Err((405, "method not allowed for this path".to_owned()))
        }
        (_, path) => Err((404, format!("there is no {path} here"))),
    };
    Answer::Response(result.unwrap_or_else(|(status, error)| Response::problem(status, error)))
}

fn task(request: &Request) -> Result<Task, Refusal> {
    match request.path.as_str() {
        "/v1/pod/freeze" => Ok(Task::Freeze),
        "/v1/pod/thaw" => Ok(Task::Thaw),
        _ => match request.body.as_slice() {
            [] => Ok(Task::Checkpoint(Checkpoint::default())),
            body => serde_json::from_slice(body)
                .map(Task::Checkpoint)
                .map_err(|error| (400, format!("the request makes no sense: {error}"))),
        },
    }
}

fn kill(pod: &mut dyn Pod, body: &[u8]) -> Result<Response, Refusal> {
    let kill = Kill::parse(body)?;
    pod.kill(kill.signal)?;
    Ok(Response::json(202, &pod.inspect()))
}

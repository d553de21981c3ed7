//! The keeper of a user's paravirtual domains: what programs ask of it, where they find it, and what it finds of
//! theirs.
//!
//! It has a directory in the registry, whose name no domain can have, with a lock that it holds as long as it lives and
//! a socket. What a domain is worth is a file in the domain's directory, which a keeper that comes back reads again;
//! who changes it replaces it whole, and then asks the keeper to look.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, send,
    socket_with,
};
use serde::{Deserialize, Serialize};
use spec::Scheduling;

use super::client::{self, Client};
use super::files;
use super::registry::Registry;

/// What a domain is worth ([`Scheduling`], JSON), in the domain's directory.
pub const POLICY: &str = "policy.json";

/// The number of the process that forks a domain's helpers, in the domain's directory. It is written before the guest
/// runs; the domain's process cannot open it afterwards.
pub const HELPERS: &str = "helpers";

/// The named pipe in the domain's directory that whoever stops the domain has open for writing: when that one ends, the
/// host continues the domain.
pub const LIFELINE: &str = "lifeline";

/// Asks it to look at the registry again.
pub const LOOK: &str = "/v1/keeper/look";

/// Asks how domains stand.
pub const STANDINGS: &str = "/v1/keeper/domains";

/// The longest policy that is read.
const POLICY_MAX_BYTES: u64 = 64 << 10;

/// How a domain stands with the scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// Its name.
    pub name: String,
    /// Its vCPUs.
    pub vcpus: usize,
    /// vCPUs that want to run.
    pub runnable: usize,
    /// Of these, those that may.
    pub running: usize,
    /// Its weight.
    pub weight: u32,
    /// Its cap, as a percentage of one processor.
    pub cap: Option<u32>,
    /// Its warp, in milliseconds.
    pub warp_ms: u64,
    /// What all of its processes have used since the keeper knows it, by the host's account.
    pub used_ns: u64,
    /// What its vCPUs have waited at their gates, by its own account.
    pub waited_ns: u64,
    /// How often.
    pub waits: u64,
    /// The longest of these.
    pub longest_wait_ns: u64,
    /// Its age: its virtual time, in nanoseconds at the default weight.
    pub virtual_time: i64,
    /// How often it was stopped because it took what it was not given.
    pub stops: u64,
    /// Whether it is stopped.
    pub is_stopped: bool,
}

/// What decides which vCPUs run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// Borrowed Virtual Time: weights, caps and warps.
    #[default]
    Bvt,
    /// The host's: these mean nothing.
    Host,
}

/// Which scheduler the keeper is to use.
#[must_use]
pub fn scheduler(registry: &Registry) -> SchedulerKind {
    let text = registry.read(files::SCHEDULER, POLICY_MAX_BYTES).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Say which scheduler the keeper is to use, from when it looks again and as long as nobody says otherwise.
///
/// # Errors
///
/// The host's.
pub fn set_scheduler(registry: &Registry, kind: SchedulerKind) -> io::Result<()> {
    registry.write(files::SCHEDULER, &serde_json::to_vec(&kind)?)
}

/// A connection to the keeper, for one request; none if there is no keeper that answers.
fn connect(registry: &Registry) -> Option<Client> {
    let directory = registry.keeper().ok()?;
    let name = "keeper".parse().ok()?;
    Client::at(name, &files::path(&directory, files::SOCKET)).ok()
}

/// The keeper's answer; none if there is no keeper, or if it ended before it answered.
fn ask<T>(
    registry: &Registry,
    request: impl FnOnce(Client) -> Result<T, client::Error>,
) -> Result<Option<T>, client::Error> {
    match connect(registry).map(request).transpose() {
        Err(client::Error::Io { error, .. }) if is_hang_up(&error) => Ok(None),
        answer => answer,
    }
}

/// Whether the other end is there no more, which the host may have accepted the connection for.
fn is_hang_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Have the keeper look at the registry again, and wait until it has. Without one, what has changed holds when there is
/// one again.
///
/// # Errors
///
/// It does not answer as it should.
pub fn look(registry: &Registry) -> Result<(), client::Error> {
    let look = |keeper: Client| keeper.post::<serde_json::Value>(LOOK, &serde_json::Value::Null);
    ask(registry, look).map(drop)
}

/// Tell the keeper to look at the registry again, and do not wait until it has; whether there is one. One that is
/// stopped holds nobody up.
#[must_use]
pub fn nudge(registry: &Registry) -> bool {
    let tell = || -> io::Result<()> {
        let directory = registry.keeper()?;
        let address = SocketAddrUnix::new(files::path(&directory, files::SOCKET))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect_to(&socket, &address) {
            // Many wait to be heard, and one of them will be.
            Err(Errno::AGAIN) => return Ok(()),
            connected => connected?,
        }
        let request = format!("POST {LOOK} HTTP/1.1\r\nHost: keeper\r\nContent-Length: 0\r\n\r\n");
        send(&socket, request.as_bytes(), SendFlags::NOSIGNAL)?;
        Ok(())
    };
    tell().is_ok()
}

/// How domains stand with the keeper; none if there is no keeper.
///
/// # Errors
///
/// It does not answer as it should.
pub fn standings(registry: &Registry) -> Result<Vec<Standing>, client::Error> {
    ask(registry, |keeper| keeper.get(STANDINGS)).map(Option::unwrap_or_default)
}

/// What a domain is worth, by the file in its directory.
///
/// # Errors
///
/// There is none, or nothing of ours.
pub fn policy(directory: impl AsFd) -> io::Result<Scheduling> {
    let text = files::read(directory, POLICY, POLICY_MAX_BYTES)?;
    let policy: Scheduling = serde_json::from_slice(&text)?;
    policy.check().map_err(io::Error::other)?;
    Ok(policy)
}

/// The number of the process that forks a domain's helpers, by the file in its directory; none if it is not there yet.
#[must_use]
pub fn helpers(directory: impl AsFd) -> Option<i32> {
    let text = files::read(directory, HELPERS, POLICY_MAX_BYTES).ok()?;
    std::str::from_utf8(&text).ok()?.trim_end().parse().ok()
}

/// Say what a domain is worth. Who reads it meanwhile finds the one or the other.
///
/// # Errors
///
/// The host's.
pub fn set_policy(directory: impl AsFd, policy: &Scheduling) -> io::Result<()> {
    files::replace(directory, POLICY, &serde_json::to_vec(policy)?)
}

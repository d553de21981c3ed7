//! Starts the first process of a pod in namespaces of its own, with the pod's users mapped to those of the host.
//!
//! The program is `guest/pod-init`, static and executed from a sealed file in memory: it needs nothing of the root that
//! it is about to build. `guest/pod-protocol` says what goes between it and us.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

use host::poll::{PollFlags, wait_for};
use host::processes::identity::open_process;
use host::rights;
use pod_protocol::{LAYERS, MAPPED, Root, Setup, UNSHARED, UPLINK};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Signal, pidfd_send_signal};

use crate::limits::{COMPLAINT_MAX_BYTES, END_PATIENCE, START_PATIENCE};

pub mod clocks;
mod files;
mod given;
mod users;

pub use files::Helper;
pub use users::Users;

/// The program.
const INIT: &[u8] = include_bytes!(env!("BIV_POD_INIT"));

/// Why a pod has no names.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host did not do something.
    #[error("cannot start a pod: {0}")]
    Host(#[from] io::Error),
    /// What the pod is to be cannot be told.
    #[error(transparent)]
    Setup(#[from] pod_protocol::Error),
    /// Its clocks.
    #[error("cannot set the pod's clocks: {0}")]
    Clocks(io::Error),
    /// Its users.
    #[error("cannot map the pod's users: {0}")]
    Users(io::Error),
    /// The first process says why.
    #[error("cannot make the pod: {0}")]
    Init(String),
}

/// The first process of a pod: the outer one, which ends when process 1 of the pod has.
#[derive(Debug)]
pub struct First {
    /// The process.
    child: Child,
    /// The same, for whoever is to end the pod.
    process: OwnedFd,
    complaints: Option<ChildStderr>,
    /// The other end of its interface, until somebody takes it.
    pub peer: Option<Peer>,
    /// The directory of its layers' upper parts, when there are some.
    layers: Option<OwnedFd>,
}

/// The other end of a pod's interface.
#[derive(Debug)]
pub struct Peer {
    /// A packet socket, for what is the gateway's.
    pub socket: OwnedFd,
    /// Another, for what is its neighbours', if it may have any.
    pub neighbours: Option<OwnedFd>,
    /// A socket for requests about it (rtnetlink(7)).
    pub requests: OwnedFd,
}

/// Starts it, with clocks that show `clocks` (see [`clocks`]) or those of the host; with the line to it, which is to
/// be greeted over.
///
/// # Errors
///
/// The host forbids it, or the first process fails before it is in its namespaces. What fails later closes the line.
pub fn start(
    setup: &Setup,
    users: &Users,
    clocks: Option<[u64; 2]>,
) -> Result<(First, UnixStream), Error> {
    let program = program()?;
    let given = given::Tree::of(&setup.root, users);
    let text = sealed(c"biv-pod", &setup.encode()?, MemfdFlags::empty())?;
    let (mut ours, theirs) = UnixStream::pair()?;
    // The name under which the kernel finds the program is one of the new process's own.
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg0("biv-pod").env_clear().current_dir("/");
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::from(text)).stderr(Stdio::piped());
    // The terminal's signals are the keeper's business.
    command.process_group(0);
    let mut child = command.spawn()?;
    // It holds the other end.
    drop(command);
    let complaints = child.stderr.take();
    let process = open_process(child.id())?;
    let mut first = First { child, process, complaints, peer: None, layers: None };
    if !has_unshared(&mut ours) {
        return Err(Error::Init(first.why()));
    }
    if let Some(clocks) = clocks {
        clocks::set(first.child.id(), clocks).map_err(Error::Clocks)?;
    }
    users.map(first.child.id()).map_err(Error::Users)?;
    match given {
        Some(given) => {
            rights::send(&ours, &[MAPPED], &[given.belong_to(first.child.id()).as_fd()])?
        }
        None => ours.write_all(&[MAPPED])?,
    }
    if setup.network.is_some() {
        first.peer = Some(peer(&ours).ok_or_else(|| Error::Init(first.why()))?);
    }
    first.layers = Some(layers(&ours).ok_or_else(|| Error::Init(first.why()))?);
    Ok((first, ours))
}

/// The program of pods, as a file that can be executed.
fn program() -> io::Result<OwnedFd> {
    sealed(c"biv-pod-init", INIT, MemfdFlags::EXEC)
}

/// Tries whether there can be pods here, and leaves no trace; which users they would have.
///
/// # Errors
///
/// Why there can be none.
pub fn probe() -> Result<Users, Error> {
    let users = Users::of_process();
    let root = Root { path: b"/".to_vec(), is_writable: false, is_host: true };
    let setup = Setup {
        keeper: std::process::id(),
        hostname: b"probe".to_vec(),
        root,
        shared: Vec::new(),
        hidden: Vec::new(),
        has_groups: users.has_groups(),
        network: None,
    };
    match start(&setup, &users, None) {
        Err(Error::Users(_)) if matches!(users, Users::Ranges(_)) => {
            let setup = Setup { has_groups: false, ..setup };
            greeted(start(&setup, &Users::One, None)?).map(|()| Users::One)
        }
        other => greeted(other?).map(|()| users),
    }
}

/// Waits until the first process has given the pod its names, and greets.
fn greeted((mut first, mut line): (First, UnixStream)) -> Result<(), Error> {
    let mut greeting = [0];
    match speaks(&line) && line.read_exact(&mut greeting).is_ok() {
        true => Ok(()),
        false => Err(Error::Init(first.why())),
    }
}

/// Whether the first process is in its namespaces, in time.
fn has_unshared(line: &mut UnixStream) -> bool {
    let mut answer = [0];
    speaks(line) && line.read_exact(&mut answer).is_ok() && answer == [UNSHARED]
}

/// The directory of the pod's layers, which the first process sends when it has made them, in time.
fn layers(line: &UnixStream) -> Option<OwnedFd> {
    told(line, LAYERS, 1)?.pop()
}

/// The descriptors that come with this word of the first process, in time; so many at the most.
fn told(line: &UnixStream, word: u8, most: usize) -> Option<Vec<OwnedFd>> {
    let mut byte = [0];
    let received = speaks(line).then(|| rights::receive(line, &mut byte, most, RecvFlags::empty()));
    let received = received?.ok().filter(|received| received.bytes == 1)?;
    (byte == [word]).then_some(received.files)
}

/// Whether the first process says something, or has ended, in time.
fn speaks(line: &UnixStream) -> bool {
    let deadline = Instant::now() + START_PATIENCE;
    wait_for(line.as_fd(), PollFlags::IN, Some(deadline)).is_ok_and(|ready| !ready.is_empty())
}

/// The other end of the pod's interface, which the first process makes and sends, in time.
fn peer(line: &UnixStream) -> Option<Peer> {
    let mut files = told(line, UPLINK, 3)?.into_iter();
    Some(Peer { socket: files.next()?, requests: files.next()?, neighbours: files.next() })
}

/// A file in memory that nobody can change any more.
fn sealed(name: &std::ffi::CStr, contents: &[u8], flags: MemfdFlags) -> io::Result<OwnedFd> {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(name, flags) {
        // Before Linux 6.3 every such file can be executed, and none has to say so.
        Err(Errno::INVAL) => memfd_create(name, flags.difference(MemfdFlags::EXEC))?,
        other => other?,
    };
    let mut file = File::from(file);
    file.write_all(contents)?;
    fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(file.into())
}

impl First {
    /// What ends the pod, for another thread.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn handle(&self) -> io::Result<Handle> {
        Ok(Handle(self.process.try_clone()?))
    }

    /// What the thread that traces the pod needs of it.
    ///
    /// # Errors
    ///
    /// The host's, or it has ended.
    pub fn traced(&self) -> io::Result<Traced> {
        let layers = self.layers.as_ref().ok_or(io::ErrorKind::NotFound)?.try_clone()?;
        Ok(Traced { outer: self.child.id(), layers })
    }

    /// Waits until it has ended; whether it has, by the deadline.
    #[must_use]
    pub fn has_ended_by(&self, deadline: Instant) -> bool {
        wait_for(self.process.as_fd(), PollFlags::IN, Some(deadline))
            .is_ok_and(|ready| !ready.is_empty())
    }

    /// Kills it, and the pod with it.
    pub fn kill(&self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Waits for its end, to which it is made to come. Whether it was killed: then process 1 of the pod, which the
    /// kernel kills after it, is a child of ours.
    pub fn end(&mut self) -> bool {
        if !self.has_ended_by(Instant::now() + END_PATIENCE) {
            self.kill();
        }
        self.child.wait().is_ok_and(|status| status.signal().is_some())
    }

    /// What it has complained of when it has ended, which it is made to.
    pub fn why(&mut self) -> String {
        self.end();
        match complaint(self.complaints.take()) {
            said if said.is_empty() => "its first process was killed".to_owned(),
            said => said,
        }
    }
}

/// What a process has complained of, when it has ended.
fn complaint(complaints: Option<ChildStderr>) -> String {
    let mut text = Vec::new();
    if let Some(complaints) = complaints {
        let _ = complaints.take(COMPLAINT_MAX_BYTES).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).trim_end().to_owned()
}

impl Drop for First {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// A pod as what is traced. The keeper reaps its outer process when nobody traces the pod any more.
#[derive(Debug)]
pub struct Traced {
    outer: u32,
    /// The directory of its layers' upper parts.
    pub layers: OwnedFd,
}

/// Process 1 of a pod.
#[derive(Debug)]
pub struct Init {
    /// Its number on the host.
    pub number: u32,
    /// Itself.
    pub process: OwnedFd,
}

impl Traced {
    /// Process 1 of the pod: the only child of the outer process, which does not reap it unseen.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn init(&self) -> io::Result<Init> {
        let number = self.child()?;
        let process = open_process(number)?;
        // It was that one, and not another that has got its number since.
        match self.child()? == number {
            true => Ok(Init { number, process }),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn child(&self) -> io::Result<u32> {
        let path = format!("/proc/{outer}/task/{outer}/children", outer = self.outer);
        let children = std::fs::read_to_string(path)?;
        let number = children.split_whitespace().next().and_then(|number| number.parse().ok());
        Ok(number.ok_or(io::ErrorKind::NotFound)?)
    }
}

/// What ends a pod.
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// Ends it at once.
    pub fn kill(&self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

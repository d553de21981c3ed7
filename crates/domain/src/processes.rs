//! The executions of the program that serve a machine: a detached machine, and helper processes.
//!
//! All processes of a machine are executions of one program, whichever links this crate. Its `main`
//! calls [`begin`] first, which recognizes such an execution by its first argument, and does not
//! return then. The parent process writes the second argument. A user who types it gains nothing
//! over starting a program of his own.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use api::status;
use serde::de::DeserializeOwned;
use session::homes;
use uplink::Serving as Network;

use crate::helper::MARK;
use crate::keeper::{self, Keeping};
use crate::network::routed::{self, Serving as Routed};
use crate::run::boot_disk::{self, ReadDisk, ServeDisk};
use crate::run::directories::{self, ServeFiles};
use crate::run::launch::{self, Carry};
use crate::run::{carry_out, serve_disk};
use crate::say::say;
use crate::seal::{self, Sealing};
use crate::unpack::{self, Unpacking};
use crate::vsock::{self, Serving as Sockets};
use crate::{layout, log};

/// A process of ours, and what it is to do.
enum Process {
    Launch(Carry),
    Files(ServeFiles),
    Network(Network),
    Router(Routed),
    Sockets(Sockets),
    Switch(switch::Serving),
    Seal(Sealing),
    Unpack(Unpacking),
    /// Reads what a disk boots.
    ReadDisk(Box<ReadDisk>),
    /// A machine that reads what that does not.
    ServeDisk(Box<ServeDisk>),
    Keep(Keeping),
    Other(&'static OtherProcess, Other),
}

/// What a process does that serves something else than a machine.
enum Other {
    /// What a descriptor says.
    Carry(fn(&Carry) -> u8, Carry),
    /// What it is told.
    Serve(&'static CStr, fn() -> io::Result<()>),
}

/// A process that serves something else than a machine, of a program that links this crate: another execution of the
/// program.
#[derive(Debug)]
pub struct OtherProcess {
    /// Its kind.
    pub kind: &'static str,
    /// Does what it is to do.
    pub task: OtherTask,
}

/// What such a process does.
#[derive(Debug)]
pub enum OtherTask {
    /// What a descriptor says, if it was started by [`launch::command_of`]; returns its exit status.
    Carry(fn(&Carry) -> u8),
    /// What it is told over its standard streams, if it was started as a helper whose order is nothing; under
    /// a name of its own.
    Serve(&'static CStr, fn() -> io::Result<()>),
}

/// To be called first in `main`, before anything is open or running: a process that serves a machine does so, and ends
/// here. In any other, what is open besides the standard streams is closed when a machine is about to run. `others` are
/// the processes that the program knows besides.
pub fn begin(others: &'static [OtherProcess]) {
    layout::settle_further();
    if let Err(error) = host::standard_streams::keep_closed() {
        say(&format!("cannot prepare the standard streams: {error}"));
        std::process::exit(status::FAILURE.into());
    }
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    match words.next().as_deref().and_then(kind) {
        Some(kind) => std::process::exit(be(&kind, words.next(), &program, others).into()),
        None => {
            name(&own_name(&program));
            host::inherited::mark(&[]);
        }
    }
}

/// The kind of process that the first word says, if it does.
fn kind(word: &OsStr) -> Option<OsString> {
    let kind = word.as_bytes().strip_prefix(MARK.as_bytes())?;
    Some(OsString::from_vec(kind.to_vec()))
}

/// Be such a process; returns its exit status.
fn be(
    kind: &OsStr,
    order: Option<OsString>,
    program: &OsStr,
    others: &'static [OtherProcess],
) -> u8 {
    let order = order.unwrap_or_default();
    let process = match Process::parse(kind, order.as_bytes(), others) {
        Ok(process) => process,
        Err(reason) => {
            say(&format!("{MARK}{} is for processes of biv itself: {reason}", kind.display()));
            return status::USAGE;
        }
    };
    name(&process.name(program));
    // What was left open by chance is for nobody.
    host::inherited::mark(&process.passed());
    process.run()
}

impl Process {
    /// The process that two words mean.
    fn parse(kind: &OsStr, order: &[u8], others: &'static [OtherProcess]) -> Result<Self, String> {
        fn read<T: DeserializeOwned>(order: &[u8]) -> Result<T, String> {
            serde_json::from_slice(order).map_err(|error| format!("its order: {error}"))
        }
        match kind.to_str().unwrap_or_default() {
            launch::KIND => read(order).map(Self::Launch),
            directories::KIND => read(order).map(Self::Files),
            uplink::KIND => read(order).map(Self::Network),
            routed::KIND => read(order).map(Self::Router),
            switch::KIND => read(order).map(Self::Switch),
            vsock::KIND => read(order).map(Self::Sockets),
            seal::KIND => read(order).map(Self::Seal),
            keeper::KIND => read(order).map(Self::Keep),
            unpack::KIND => read(order).map(Self::Unpack),
            boot_disk::KIND => read(order).map(|order| Self::ReadDisk(Box::new(order))),
            boot_disk::MACHINE_KIND => read(order).map(|order| Self::ServeDisk(Box::new(order))),
            kind => match others.iter().find(|other| other.kind == kind) {
                Some(other) => match other.task {
                    OtherTask::Carry(run) => read(order).map(|order| Other::Carry(run, order)),
                    OtherTask::Serve(name, serve) => {
                        read::<()>(order).map(|()| Other::Serve(name, serve))
                    }
                }
                .map(|task| Self::Other(other, task)),
                None => Err("there is no such process".to_owned()),
            },
        }
    }

    /// What `ps` and `top` call it, in at most 15 bytes: machines, and what users start, are found by
    /// `pgrep -x biv`, those that serve a machine have names of their own.
    fn name(&self, program: &OsStr) -> CString {
        match self {
            Self::Launch(_) | Self::Other(_, Other::Carry(..)) => own_name(program),
            Self::Other(_, Other::Serve(name, _)) => (*name).to_owned(),
            Self::Files(_) => c"biv files".into(),
            Self::Network(_) => c"biv network".into(),
            Self::Router(_) => c"biv router".into(),
            Self::Sockets(_) => c"biv sockets".into(),
            Self::Switch(_) => c"biv switch".into(),
            Self::Seal(_) => c"biv seal".into(),
            Self::Unpack(_) => c"biv unpack".into(),
            Self::ReadDisk(_) => c"biv disk".into(),
            Self::ServeDisk(_) => c"biv disk guest".into(),
            Self::Keep(_) => c"biv keeper".into(),
        }
    }

    /// The descriptors that it was given on purpose, besides its streams.
    fn passed(&self) -> Vec<i32> {
        match self {
            Self::Network(serving) => serving.passed(),
            Self::Router(serving) => vec![serving.control, serving.uplink],
            Self::Switch(serving) => vec![serving.control],
            Self::Sockets(serving) => vec![serving.cable, serving.listener],
            Self::Launch(order) | Self::Other(_, Other::Carry(_, order)) => vec![order.descriptor],
            Self::Other(_, Other::Serve(..))
            | Self::Files(_)
            | Self::Seal(_)
            | Self::Unpack(_)
            | Self::ReadDisk(_)
            | Self::ServeDisk(_)
            | Self::Keep(_) => Vec::new(),
        }
    }

    /// Does what it is to do; returns its exit status. A machine may still have threads that run; nothing of
    /// theirs is waited for.
    fn run(self) -> u8 {
        match self {
            Self::Launch(order) => {
                layout::settle();
                ended(carry_out(&order))
            }
            Self::Files(order) => done("the file server", serve_files(&order)),
            Self::Network(serving) => {
                log::start(0);
                done("the network", uplink::serve(&serving))
            }
            Self::Router(serving) => {
                log::start(0);
                done("the router", routed::serve(&serving))
            }
            Self::Switch(serving) => {
                log::start(0);
                done("the switch", switch::serve(&serving))
            }
            Self::Sockets(serving) => done("the guest's sockets", vsock::serve(&serving)),
            Self::Seal(sealing) => ended(seal::seal_warm_start(&sealing).map(|()| status::SUCCESS)),
            Self::Other(_, Other::Carry(run, order)) => run(&order),
            Self::Other(other, Other::Serve(_, serve)) => done(other.kind, serve()),
            Self::Keep(order) => done("the keeper", order.run()),
            Self::Unpack(order) => done("unpacking", unpack::serve(order.confined)),
            Self::ReadDisk(order) => done("reading the disk", boot_disk::serve(&order)),
            Self::ServeDisk(order) => {
                layout::settle();
                ended(serve_disk(&order))
            }
        }
    }
}

/// The status of what has one of its own, or that of a failure, of which it is said why.
fn ended(result: Result<u8, impl Display>) -> u8 {
    result.unwrap_or_else(|error| {
        say(&error.to_string());
        status::FAILURE
    })
}

/// The same of what only succeeds or fails.
fn done(what: &str, result: io::Result<()>) -> u8 {
    ended(result.map(|()| status::SUCCESS).map_err(|error| format!("{what}: {error}")))
}

fn serve_files(order: &ServeFiles) -> io::Result<()> {
    host::inherited::close_marked();
    let homes = homes::readable(order.home.clone());
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    if order.is_superuser {
        match host::subordinate::enter(&control) {
            // There is no machine: who was to start it says why.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
    }
    files::server::serve(&control, order.confined, &homes).map_err(io::Error::other)
}

/// The name of the program's file: one that was started as /proc/self/exe would be called that.
fn own_name(program: &OsStr) -> CString {
    let file = Path::new(program).file_name().unwrap_or(program);
    CString::new(file.as_bytes()).unwrap_or_default()
}

/// Be called that, as far as there is room.
fn name(name: &CString) {
    let _ = rustix::thread::set_name(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &[OtherProcess] = &[
        OtherProcess { kind: "other", task: OtherTask::Carry(|_| 0) },
        OtherProcess { kind: "another", task: OtherTask::Serve(c"biv another", || Ok(())) },
    ];

    #[test]
    fn what_no_process_of_ours_was_given_is_refused() {
        let check = |kind: &str, order: &str, is_good: bool| {
            let process = Process::parse(OsStr::new(kind), order.as_bytes(), OTHERS);
            assert_eq!(process.is_ok(), is_good, "{kind} {order}");
        };
        check("unpack", r#"{"confined":true}"#, true);
        check("unpack", r#"{"confined":true,"more":1}"#, false);
        check("unpack", r#"{"confined":1}"#, false);
        check("unpack", "", false);
        check("unpacks", "{}", false);
        check("read-disk", r#"{"disk":{"path":"/a"},"confined":true}"#, true);
        check("read-disk", r#"{"disk":{},"confined":true}"#, false);
        check("read-disk", r#"{"disk":{"path":"/a"},"confined":true,"served":true}"#, true);
        check("serve-disk", r#"{"disk":{"path":"/a"},"confined":true}"#, true);
        check("serve-disk", r#"{"disk":{"path":"/a"},"confined":true,"net":true}"#, false);
        check("", "{}", false);
        check("launch", r#"{"descriptor":5,"detached":false}"#, true);
        check("launch", r#"{"descriptor":"5"}"#, false);
        check("other", r#"{"descriptor":5,"detached":true}"#, true);
        check("other", r#"{"descriptor":5}"#, false);
        check("another", "null", true);
        check("another", "5", false);
        check(
            "network",
            r#"{"cable":3,"reaches_host":false,"tcp":[[4,80]],"udp":[],"confined":true}"#,
            true,
        );
        check(
            "router",
            r#"{"control":3,"uplink":4,"gateway":"10.77.0.1","bits":24,"confined":true}"#,
            true,
        );
        check("switch", r#"{"control":3,"gateway":"10.89.1.1","bits":24}"#, true);
        check(
            "network",
            r#"{"cable":3,"reaches_host":false,"tcp":[[4,80000]],"udp":[],"confined":true}"#,
            false,
        );
        check(
            "sockets",
            r#"{"cable":3,"listener":4,"path":"/a","address":3,"confined":true}"#,
            true,
        );
        check("serve-files", r#"{"home":null,"confined":true}"#, true);
        check("seal", r#"{"state":"/s","text":"{}","name":"n","in_background":false}"#, true);
    }

    #[test]
    fn only_a_marked_word_is_a_process() {
        assert_eq!(kind(OsStr::new("--bivouac-process=unpack")), Some("unpack".into()));
        for word in ["unpack", "--bivouac-process", "x--bivouac-process=unpack", ""] {
            assert_eq!(kind(OsStr::new(word)), None, "{word}");
        }
    }
}

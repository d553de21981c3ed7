//! The outer process: it leaves the host's namespaces, and starts process 1 in the new ones.
//!
//! A process that unshares its process namespace stays in the old one; its next child is process 1 of the new one.
//! Users are mapped from outside, by the keeper: who has unshared its user namespace has no right in the old one to map
//! more than itself.

use std::ffi::{OsString, c_int};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use pod_protocol::{MAPPED, SETUP_MAX_BYTES, STATUS_FAILED, Setup, UNSHARED};
use rustix::fs::{FlockOperation, Gid, Uid, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::error::{Doing, Error};
use crate::keeper;
use crate::root;
use crate::unshare::unshare;
use crate::uplink;

/// How the inner process is called, by which it knows that it is.
pub const INNER_NAME: &str = "biv-pod-init";

/// The namespaces of a pod.
const NAMESPACES: [c_int; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWTIME,
];

/// What the outer process does; returns the status of the inner one.
pub fn enter_and_wait() -> Result<u8, Error> {
    let setup = read_setup()?;
    hold_setup().doing("cannot lock the description of the pod")?;
    end_with_keeper(setup.keeper)?;
    // The keys of the keeper's terminal are not for us.
    let _ = setsid();
    enter()?;
    let given = be_mapped(&setup)?.map(|given| root::attach(&given)).transpose()?;
    // Who changes its user would live on without its parent.
    end_with_keeper(setup.keeper)?;
    if let Some(network) = &setup.network {
        uplink::make(network)?;
    }
    // The inner process takes this one along to the pod's root.
    let nothing = File::options().read(true).write(true).open("/dev/null").doing("/dev/null")?;
    let mut inner = Command::new("/proc/self/exe")
        .arg0(INNER_NAME)
        .args(given)
        .env_clear()
        .current_dir("/")
        .spawn()
        .doing("cannot start the first process of the pod")?;
    let _ = rustix::thread::set_name(c"biv pod");
    // Only the inner process has the line from here on: its end is the end of the line. The description stays, for the
    // lock on it.
    rustix::stdio::dup2_stdin(&nothing).doing("cannot close the line")?;
    Ok(status_of(inner.wait().doing("cannot wait for the first process of the pod")?))
}

fn status_of(ended: ExitStatus) -> u8 {
    let signal = ended.signal().and_then(|signal| u8::try_from(signal).ok());
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    code.or(signal.map(|signal| signal.wrapping_add(128))).unwrap_or(STATUS_FAILED)
}

/// Has the kernel kill this process when the thread of the keeper ends that has started it.
fn end_with_keeper(keeper: u32) -> Result<(), Error> {
    end_with_parent()?;
    // One that has ended already leaves another parent.
    match getppid().map(Pid::as_raw_pid) == i32::try_from(keeper).ok() {
        true => Ok(()),
        false => Err(Error::NoKeeper),
    }
}

/// Has the kernel kill this process, the inner one, when the outer one ends.
///
/// A parent in another process namespace has no number here that would tell whether it has ended already. It holds a
/// lock as long as it lives instead.
pub fn end_with_outer() -> Result<(), Error> {
    end_with_parent()?;
    match hold_setup() {
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(()),
        Ok(()) => Err(Error::NoKeeper),
        other => other.doing("cannot end with the keeper"),
    }
}

/// Has the kernel kill this process when the thread ends that has started it.
pub fn end_with_parent() -> Result<(), Error> {
    set_parent_process_death_signal(Some(Signal::KILL)).doing("cannot end with the keeper")
}

/// Locks the description of the pod, until this process ends or closes it (fcntl(2), `F_SETLK`).
fn hold_setup() -> Result<(), Errno> {
    fcntl_lock(rustix::stdio::stdout(), FlockOperation::NonBlockingLockExclusive)
}

/// The pod that the inner process makes, whose arguments say where its root is if that was given.
pub fn inner_setup(mut arguments: impl Iterator<Item = OsString>) -> Result<Setup, Error> {
    let mut setup = read_setup()?;
    if let Some(given) = arguments.next() {
        setup.root.path = given.into_vec();
    }
    Ok(setup)
}

/// What the keeper has written for this process.
fn read_setup() -> Result<Setup, Error> {
    let file = rustix::stdio::stdout().try_clone_to_owned().doing("no description of the pod")?;
    let mut bytes = Vec::new();
    let file = Whole { file: file.into(), offset: 0 };
    let most = SETUP_MAX_BYTES as u64 + 1;
    file.take(most).read_to_end(&mut bytes).doing("cannot read the description of the pod")?;
    Ok(Setup::decode(&bytes)?)
}

/// A file from its beginning, whose offset stays: two processes read it.
struct Whole {
    file: File,
    offset: u64,
}

impl Read for Whole {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Enters new namespaces of all kinds.
fn enter() -> Result<(), Error> {
    let bits = NAMESPACES.iter().fold(0, |bits, kind| bits | kind).cast_unsigned();
    match unshare(UnshareFlags::from_bits_retain(bits)) {
        // Too many of them (ENOSPC), a security module or a filter, or a kernel without.
        Err(error @ (Errno::PERM | Errno::NOSPC | Errno::ACCESS | Errno::USERS)) => {
            Err(Error::Forbidden(error))
        }
        other => other.doing("cannot enter new namespaces"),
    }
}

/// Has the keeper map users, and becomes the superuser of the pod. Returns the pod's root, if the keeper gives it.
fn be_mapped(setup: &Setup) -> Result<Option<OwnedFd>, Error> {
    let line: OwnedFd = rustix::stdio::stdin().as_fd().try_clone_to_owned().doing("no line")?;
    let mut line = File::from(line);
    line.write_all(&[UNSHARED]).map_err(|_| Error::NoKeeper)?;
    let Ok(([MAPPED], given)) = keeper::hear(&line) else {
        return Err(Error::NoKeeper);
    };
    let what = "cannot become the superuser of the pod";
    if setup.has_groups {
        set_thread_groups(&[]).doing(what)?;
    }
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).doing(what)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).doing(what)?;
    Ok(given)
}

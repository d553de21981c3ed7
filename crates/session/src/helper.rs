//! Helper processes of a machine, or of a pod. The program starts itself again with arguments that no user types
//! (`domain::processes` recognizes them). Each helper ends when its socket is closed. It inherits
//! nothing else of the user's: neither environment variables nor descriptors that were left open
//! ([`host::inherited`]).

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};
use serde::Serialize;

/// What the first word of such a process begins with; its kind follows. The second is what it is to do, as JSON.
pub const MARK: &str = "--bivouac-process=";

/// The one variable that a helper gets: what it is to say on standard error.
const LOG: &str = "RUST_LOG";

/// The command by which this program starts itself as a process of this kind, under the name that it has itself.
///
/// # Errors
///
/// What it is to do cannot be written down.
pub fn again(kind: &str, order: &impl Serialize) -> io::Result<Command> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(std::env::args_os().next().unwrap_or_else(|| OsString::from("biv")));
    command.arg(format!("{MARK}{kind}")).arg(serde_json::to_string(order)?);
    Ok(command)
}

/// The command that starts a helper of this kind, which does what `order` says.
///
/// # Errors
///
/// That cannot be written down.
pub fn helper(kind: &str, order: &impl Serialize) -> io::Result<Command> {
    let mut command = again(kind, order)?;
    command.arg0("biv").stdin(Stdio::null()).stdout(Stdio::null());
    command.current_dir("/").env_clear().envs(std::env::var_os(LOG).map(|value| (LOG, value)));
    // The terminal's signals are the machine's business.
    command.process_group(0);
    Ok(command)
}

/// Has this process, a helper that may be given anything, end with its parent, and take no more of these resources than
/// that, nor than it may already.
///
/// # Errors
///
/// The host does not have it so.
pub fn bound(limits: &[(Resource, u64)]) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    for &(resource, most) in limits {
        let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// Start a process that inherits a descriptor, under its number.
///
/// # Errors
///
/// Those of the start.
pub fn spawn_with(inherited: &OwnedFd, command: &mut Command) -> io::Result<Child> {
    fcntl_setfd(inherited, FdFlags::empty())?;
    let child = command.spawn();
    fcntl_setfd(inherited, FdFlags::CLOEXEC)?;
    child
}

//! Processes of our own program that serve a machine: `biv` starts itself under a verb that no user
//! needs. Each ends with the socket that it is given, and has nothing else of the user's: neither the variables of
//! the environment nor descriptors that were open by chance ([`host::inherited`]).

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};

/// The one variable that a helper gets: what it is to say on standard error.
const LOG: &str = "RUST_LOG";

/// The command that starts one under `verb`; unless it is `confined`, it may make any system call.
#[must_use]
pub fn helper(verb: &str, confined: bool) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("biv").arg(verb).stdin(Stdio::null()).stdout(Stdio::null());
    command.current_dir("/").env_clear().envs(std::env::var_os(LOG).map(|value| (LOG, value)));
    if !confined {
        command.arg("--no-seccomp");
    }
    // The terminal's signals are the machine's business.
    command.process_group(0);
    command
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

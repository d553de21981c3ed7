//! Gives the pod its names: what its processes see instead of the host's.

use std::fs::File;
use std::os::fd::OwnedFd;

use pod_protocol::Setup;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::setsid;

use crate::error::{Doing, Error};
use crate::{keyring, resolver, root, signals, uplink};

/// Gives the pod all its names. What is a name by itself in a new namespace (of processes, System V IPC, sockets) needs
/// nothing to be done.
pub fn give(setup: &Setup) -> Result<(), Error> {
    // Of the pod's own sessions and groups of processes, 1 is the first.
    setsid().doing("cannot begin a session")?;
    let _ = rustix::thread::set_name(c"init");
    signals::reset().doing("cannot reset signals")?;
    keyring::renew().doing("cannot have a keyring")?;
    rustix::system::sethostname(&setup.hostname).doing("cannot set the host name")?;
    let network = setup.network.as_ref();
    uplink::set_up(network).doing("cannot set up the pod's interfaces")?;
    root::enter(setup)?;
    if let Some(network) = network.filter(|_| setup.root.is_writable) {
        // A root that takes no such file has a network all the same.
        let _ = resolver::cover(network.nameserver);
    }
    Ok(())
}

/// Keeps the line to the keeper, which was standard input, and nothing else of the host.
pub fn keep_line() -> Result<OwnedFd, Error> {
    let what = "cannot keep the line to the keeper";
    let line = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).doing(what)?;
    fcntl_setfl(&line, fcntl_getfl(&line).doing(what)? | OFlags::NONBLOCK).doing(what)?;
    let nothing = File::options().read(true).write(true).open("/dev/null").doing("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing).doing(what)?;
    rustix::stdio::dup2_stdout(&nothing).doing(what)?;
    Ok(line)
}

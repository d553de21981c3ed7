//! Numbers of processes, groups and sessions.

use rustix::process::{Pid, getpgrp, getpid, getsid};

/// What this process is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// The process.
    pub pid: i32,
    /// Its group.
    pub group: i32,
    /// Its session.
    pub session: i32,
}

/// What this process is called. A group or a session whose leader is elsewhere has no number here.
pub fn own() -> Own {
    Own {
        pid: getpid().as_raw_pid(),
        group: getpgrp().as_raw_pid(),
        session: getsid(None).map_or(0, Pid::as_raw_pid),
    }
}

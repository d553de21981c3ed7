//! systemd as process 1.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::system;

/// Where it answers root's `systemctl`, with a bus or without, once it is set up (`src/core/dbus.c` of systemd).
const SOCKET: &str = "/run/systemd/private";

/// How long it is waited for. The host gives up on who does not answer for longer.
const PATIENCE: Duration = Duration::from_secs(4);

const INTERVAL: Duration = Duration::from_millis(10);

/// Whether a program is systemd.
pub fn is(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == "systemd")
}

/// Waits until it answers, if it is process 1; not for ever.
pub fn wait() {
    let start = Instant::now();
    while is(&system::first_program()) && !Path::new(SOCKET).exists() && start.elapsed() < PATIENCE
    {
        thread::sleep(INTERVAL);
    }
}

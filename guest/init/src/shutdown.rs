//! Has a system whose process 1 is not ours switch the machine off. How, depends on what process 1 is:
//!
//! | process 1 | asked by |
//! | --- | --- |
//! | systemd | SIGRTMIN+4, which starts `poweroff.target`: no bus and no other service is needed (systemd(1)) |
//! | busybox's init | SIGUSR2 |
//! | any other | the program `poweroff`, if the root has one |
//!
//! Where that fails, or there is no such program, nobody is left to ask: all processes are told to end, and the machine
//! is switched off.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use service::reaper::{self, End};

use crate::{system, systemd};

/// The arguments of process 1.
const ARGUMENTS: &str = "/proc/1/cmdline";

/// SIGRTMIN+4 as the GNU C library, with which systemd is built, has it: it keeps two for itself (signal(7)).
const RUN_POWEROFF_TARGET: i32 = 34 + 4;

/// Where roots have a program that does it.
const PROGRAMS: [&str; 4] =
    ["/sbin/poweroff", "/usr/sbin/poweroff", "/bin/poweroff", "/usr/bin/poweroff"];

/// How long processes have to end that nobody else asks to.
const PATIENCE: Duration = Duration::from_secs(1);

/// How it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By a signal to process 1.
    Signal(Signal),
    /// By a program.
    Program,
}

/// See above.
#[derive(Debug, Default)]
pub struct Shutdown {
    /// The program that was started for it.
    program: Option<u32>,
}

impl Shutdown {
    /// Begins it.
    pub fn begin(&mut self) {
        let is_asked = match way(&system::first_program(), &fs::read(ARGUMENTS).unwrap_or_default())
        {
            Way::Signal(signal) => kill_process(Pid::INIT, signal).is_ok(),
            Way::Program => self.start_program(),
        };
        if !is_asked {
            switch_off();
        }
    }

    /// A process has ended; if it is the one that was to do it, and could not, that is done here.
    pub fn note_end(&mut self, pid: u32, end: End) {
        if self.program.take_if(|program| *program == pid).is_some() && end != End::Exited(0) {
            switch_off();
        }
    }

    /// Whether there is one.
    fn start_program(&mut self) -> bool {
        let Some(program) = PROGRAMS.iter().find(|program| Path::new(program).exists()) else {
            return false;
        };
        let held = reaper::hold();
        let child = Command::new(program)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.program = child.ok().map(|child| child.id());
        reaper::note_start(held);
        self.program.is_some()
    }
}

/// How a process 1 with this program and these arguments is asked.
fn way(program: &Path, arguments: &[u8]) -> Way {
    let name = arguments.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = Path::new(OsStr::from_bytes(name)).file_name().and_then(OsStr::to_str);
    match (program.file_name().and_then(OsStr::to_str), name) {
        _ if systemd::is(program) => Way::Signal(real_time(RUN_POWEROFF_TARGET)),
        // It may be any of busybox's programs.
        (Some("busybox"), Some("init" | "linuxrc")) => Way::Signal(Signal::USR2),
        _ => Way::Program,
    }
}

/// A signal without a name.
#[allow(unsafe_code)]
fn real_time(number: i32) -> Signal {
    // SAFETY: the number is that of a signal of Linux (1 to 64), and none of the two that the C library keeps for
    // itself (32 and 33).
    unsafe { Signal::from_raw_unchecked(number) }
}

/// Switches the machine off, without process 1.
fn switch_off() {
    // The group of the first process stands for all others (kill(2)).
    let _ = kill_process_group(Pid::INIT, Signal::TERM);
    std::thread::sleep(PATIENCE);
    system::power_off();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_it_is_asked_depends_on_what_it_is() {
        let check = |program: &str, arguments: &str, expected| {
            let found = way(Path::new(program), arguments.as_bytes());
            assert_eq!(found, expected, "{program} {arguments:?}");
        };
        let systemd = Way::Signal(real_time(38));
        check("/usr/lib/systemd/systemd", "/sbin/init\0single\0", systemd);
        check("/lib/systemd/systemd", "", systemd);
        check("/bin/busybox", "/sbin/init\0", Way::Signal(Signal::USR2));
        check("/bin/busybox", "init", Way::Signal(Signal::USR2));
        check("/bin/busybox", "/bin/sh\0/sbin/init\0", Way::Program);
        for other in ["/usr/bin/dash", "/sbin/init", "", "/opt/my-systemd"] {
            check(other, "/sbin/init\0", Way::Program);
        }
    }
}

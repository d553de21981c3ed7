//! A shell on the virtio console, for the clients of `biv console`. Init starts it when a client
//! attaches. It stays when all clients have gone; if it ends while a client is attached, init
//! starts another.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use service::command::SESSION_NAME;
use service::reaper;

use crate::system::PLACE;

/// The console that virtio's driver has.
const DEVICE: &str = "/dev/hvc0";

/// The first of these that the root has.
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];

/// Of the shell. The kind of terminal is what others have on such a console.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("TERM", "vt220"),
];

/// A shell that ends sooner may be one that cannot run.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// After so many of these in a row init starts no other shell, until another client attaches.
const BRIEF_LIVES_MAX: u8 = 5;

/// The console's shell.
#[derive(Default)]
pub struct Console {
    is_wanted: bool,
    shell: Option<(u32, Instant)>,
    brief_lives: u8,
    /// The terminal as the first shell found it.
    settings: Option<Termios>,
}

impl Console {
    /// A client is attached to it, or none is any more.
    pub fn set_wanted(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
        self.brief_lives = 0;
        if is_wanted && self.shell.is_none() {
            self.start();
        }
    }

    /// A process has ended.
    pub fn has_ended(&mut self, pid: u32) {
        let Some((_, since)) = self.shell.filter(|(shell, _)| *shell == pid) else { return };
        self.shell = None;
        self.brief_lives = if since.elapsed() < LIFE_MIN { self.brief_lives + 1 } else { 0 };
        if self.is_wanted && self.brief_lives < BRIEF_LIVES_MAX {
            self.start();
        }
    }

    fn start(&mut self) {
        match self.try_start() {
            Ok(pid) => self.shell = Some((pid, Instant::now())),
            Err(error) => eprintln!("init: no shell on {DEVICE}: {error}"),
        }
    }

    fn try_start(&mut self) -> io::Result<u32> {
        // What is opened must not become our own terminal.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = File::from(open(DEVICE, flags, Mode::empty())?);
        match &self.settings {
            Some(settings) => tcsetattr(&terminal, OptionalActions::Now, settings)?,
            None => self.settings = Some(tcgetattr(&terminal)?),
        }
        let Some(shell) = SHELLS.iter().find(|shell| Path::new(shell).exists()) else {
            let text = "the guest's root has no shell";
            let _ = io::Write::write_all(&mut &terminal, format!("biv: {text}\n").as_bytes());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        let home = if Path::new("/root").is_dir() { "/root" } else { "/" };
        let _held = reaper::hold();
        let child = Command::new("/proc/self/exe")
            .arg0(SESSION_NAME)
            .args([PLACE, shell, "-l"])
            .env_clear()
            .envs(ENVIRONMENT)
            .current_dir(home)
            .stdin(terminal.try_clone()?)
            .stdout(terminal.try_clone()?)
            .stderr(terminal)
            .spawn()?;
        Ok(child.id())
    }
}

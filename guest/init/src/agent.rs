//! The agent: what serves the host beside a process 1 that is not ours ([`crate::process_one`]), as `biv exec`, `cp`
//! and `biv stop` need it. It is an ordinary process, and reaps its own children only.
//!
//! Its name begins with `@`, by which systemd leaves it alone when it ends all processes at the shutdown of the system
//! (systemd's "Storage Daemons for the Root File System"), so that commands of the host's see the end of it.
//!
//! It serves when systemd does ([`systemd::wait`]): a command that the host sends at once, such as
//! `systemctl is-system-running --wait`, is to find somebody to ask.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::ExitCode;

use protocol::{Frame, LINE};
use service::error::{Error, name_of};
use service::line::Line;
use service::reaper::End;
use service::serve::{Next, System, serve};

use crate::clock::Clock;
use crate::shutdown::Shutdown;
use crate::{random, system, systemd};

/// The name by which init knows that it is to be the agent.
pub const NAME: &str = "@biv-agent";

/// The longest text about a program that cannot be executed.
const REASON_MAX_BYTES: u64 = 4096;

/// See above.
struct Agent {
    /// Why process 1 is not what it was to be, if so.
    trouble: String,
    clock: Clock,
    shutdown: Shutdown,
}

/// What init does under the name [`NAME`]: its standard input is the line to the host, and its standard output the pipe
/// from process 1.
pub fn run() -> ExitCode {
    match try_run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn try_run() -> Result<(), Error> {
    // Of itself it would be called "exe".
    let _ = rustix::thread::set_name(c"biv-agent");
    let device = io::stdin().as_fd().try_clone_to_owned()?;
    let mut trouble = String::new();
    let pipe = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    pipe.take(REASON_MAX_BYTES).read_to_string(&mut trouble)?;
    serve(device, &mut Agent { trouble, clock: Clock::default(), shutdown: Shutdown::default() })
}

impl System for Agent {
    const PLACE: &'static str = system::PLACE;

    fn is_greeted_back(&self) -> bool {
        true
    }

    fn begin(&mut self, line: &mut Line) -> Next {
        if self.trouble.is_empty() {
            systemd::wait();
            line.send(LINE, &Frame::Started);
            return Next::GoOn;
        }
        line.send(LINE, &Frame::Unprepared(std::mem::take(&mut self.trouble).into_bytes()));
        Next::Refuse
    }

    fn obey(&mut self, frame: &Frame, _line: &mut Line) -> Result<Next, Error> {
        match frame {
            Frame::Time(time) => self.clock.hear(time),
            Frame::Seed(bytes) => random::add(bytes),
            // Whoever sits there finds what process 1 runs on it.
            Frame::Console(_) => {}
            _ => return Err(Error::OutOfTurn(name_of(frame))),
        }
        Ok(Next::GoOn)
    }

    fn terminate(&mut self) {
        self.shutdown.begin();
    }

    fn has_ended(&mut self, pid: u32, end: End) {
        self.shutdown.note_end(pid, end);
    }
}

//! Detached domains and pods: `biv run --detach` starts another process of this program, waits until that
//! process reports that the guest's command runs, prints the domain's name and ends.
//!
//! A file tells the detached process what to run. Its standard input is a
//! socket to the process that waits, its standard error a pipe. Until the command runs, its errors
//! appear where the user started it, and its status is the caller's. Afterwards it writes to the
//! domain's `messages`. Neither this process nor its helpers ever have the caller's own streams,
//! because another program may wait for the end of those.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};

use api::{Name, status};
use host::poll::{PollFlags, Poller, look_at};
use spec::shown;

/// The process that goes on, until it does.
#[derive(Debug)]
pub struct Child {
    parent: UnixStream,
    nothing: File,
}

impl Child {
    /// This process, which another has started for that.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn of_process() -> io::Result<Self> {
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        let parent = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::stdio::dup2_stdin(&nothing)?;
        // No terminal of the caller's can signal us.
        rustix::process::setsid()?;
        Ok(Self { parent: UnixStream::from(parent), nothing })
    }

    /// The command runs: tells the parent the name, and lets go of the streams.
    pub fn goes_on(mut self, name: &Name, messages: Option<&File>) -> io::Result<()> {
        rustix::stdio::dup2_stdout(&self.nothing)?;
        rustix::stdio::dup2_stderr(messages.unwrap_or(&self.nothing))?;
        // A parent that has gone is nobody's loss: the domain is in the registry.
        let _ = self.parent.write_all(format!("{name}\n").as_bytes());
        Ok(())
    }
}

/// What the process that waits hears from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The socket to the process that goes on.
    Child,
    /// That process's standard error.
    Complaints,
}

/// Starts the process that goes on, by this command, and waits until it does; prints its name, and returns the status
/// for the caller.
///
/// # Errors
///
/// The host's.
pub fn start(command: Command) -> io::Result<u8> {
    match begin(command)? {
        Begun::GoesOn(_, name) => {
            io::stdout().write_all(format!("{name}\n").as_bytes())?;
            Ok(status::SUCCESS)
        }
        Begun::Ended(status) => Ok(status),
    }
}

/// What has become of a process that was to go on.
#[derive(Debug)]
pub enum Begun {
    /// It does, under this name.
    GoesOn(std::process::Child, Name),
    /// It has ended with this status, and has said why.
    Ended(u8),
}

/// Starts the process that goes on, by this command, and waits until it does. Meanwhile its complaints are ours.
///
/// # Errors
///
/// The host's.
pub fn begin(mut command: Command) -> io::Result<Begun> {
    let (mut ours, theirs) = UnixStream::pair()?;
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // What has the other end open is the child only.
    drop(command);
    let mut complaints = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    loop {
        let mut poller = Poller::new();
        poller.register(Source::Child, ours.as_fd(), PollFlags::IN);
        poller.register(Source::Complaints, complaints.as_fd(), PollFlags::IN);
        poller.wait(None)?;
        let is_over = poller.ready().any(|(source, _)| source == Source::Child);
        pass_on(&mut complaints)?;
        if is_over {
            break;
        }
    }
    let mut name = String::new();
    ours.read_to_string(&mut name)?;
    if name.is_empty() {
        let ended = child.wait()?;
        pass_on(&mut complaints)?;
        return Ok(Begun::Ended(status_of(ended)));
    }
    let name = name.trim_end().parse().map_err(io::Error::other)?;
    Ok(Begun::GoesOn(child, name))
}

/// The status of a process that has ended, as a shell has it.
#[must_use]
pub fn status_of(ended: ExitStatus) -> u8 {
    let signal = ended.signal().map(|signal| status::of_signal(signal as u8));
    let code = ended.code().map(|code| code as u8);
    code.or(signal).unwrap_or(status::FAILURE)
}

/// Says what the process has said so far. There may be no end of it, because its helpers have it too.
fn pass_on(complaints: &mut ChildStderr) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        if look_at(&*complaints, PollFlags::IN)?.is_empty() {
            return Ok(());
        }
        match complaints.read(&mut buffer)? {
            0 => return Ok(()),
            // Nobody may be left to hear it.
            count => {
                let said = String::from_utf8_lossy(&buffer[..count]).replace("\r\n", "\n");
                let _ = io::stderr().write_all(shown::harmless(&said).as_bytes());
            }
        }
    }
}

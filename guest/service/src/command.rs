//! Starting the command: with three pipes, or as the leader of a session on a terminal.
//!
//! A session needs `setsid` and a controlling terminal between fork and exec. Instead of running
//! code of ours in a forked child, which no safe Rust can, init starts itself once more under the
//! name [`SESSION_NAME`]; that process does both and then becomes the command.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use protocol::Order;
use rustix::fs::{Uid, fchown};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::copy::COPY_NAME;
use crate::user::{self, User};

/// The name by which init knows that it is to become the leader of a session.
pub const SESSION_NAME: &str = "biv-session";

/// Status of a command that was found and could not be run, as shells have it.
const STATUS_NOT_EXECUTABLE: u8 = 126;
/// Status of a command that was not found.
const STATUS_NOT_FOUND: u8 = 127;

/// A running command and this end of its streams.
pub struct Running {
    /// Its process, which is also the leader of its process group.
    pub pid: u32,
    /// Where its standard input is written.
    pub stdin: OwnedFd,
    /// Where its output is read.
    pub stdout: OwnedFd,
    /// Where its errors are read, if not where its output is.
    pub stderr: Option<OwnedFd>,
    /// The terminal, if it has one.
    pub terminal: Option<OwnedFd>,
}

/// A command that did not start: the status to report and the line to print.
#[derive(Debug, thiserror::Error)]
#[error("biv: {name}: {reason} in the {place}")]
pub struct NotStarted {
    /// 126 or 127.
    pub status: u8,
    name: String,
    reason: String,
    /// What runs no such command: "guest" or "pod".
    place: String,
}

impl NotStarted {
    fn new(name: &OsStr, reason: io::Error, place: &str) -> NotStarted {
        let (status, reason) = match reason.kind() {
            io::ErrorKind::NotFound => (STATUS_NOT_FOUND, "command not found".to_owned()),
            io::ErrorKind::PermissionDenied => (STATUS_NOT_EXECUTABLE, "cannot execute".to_owned()),
            _ => (STATUS_NOT_EXECUTABLE, format!("cannot execute ({reason})")),
        };
        let name = name.to_string_lossy().into_owned();
        NotStarted { status, name, reason, place: place.to_owned() }
    }
}

impl NotStarted {
    /// As other programs that run commands in containers have it, a directory is no command that is not found.
    fn not_there(name: &OsStr, directory: &[u8], error: &io::Error, place: &str) -> NotStarted {
        let directory = String::from_utf8_lossy(directory);
        NotStarted {
            status: STATUS_NOT_EXECUTABLE,
            name: name.to_string_lossy().into_owned(),
            reason: format!("cannot change to the directory {directory} ({error})"),
            place: place.to_owned(),
        }
    }
}

/// Starts what `order` says, in what is called `place`.
pub fn start(order: &Order, place: &str) -> Result<Running, NotStarted> {
    let name = OsStr::from_bytes(&order.arguments[0]);
    let user = match user::find(&order.user, order.groups.as_deref()) {
        Ok(user) => user,
        Err(reason) => {
            let name = name.to_string_lossy().into_owned();
            let (status, place) = (STATUS_NOT_EXECUTABLE, place.to_owned());
            return Err(NotStarted { status, name, reason, place });
        }
    };
    let started = match order.terminal {
        Some(size) => start_on_terminal(order, user.as_ref(), size, place),
        None => start_on_pipes(order, user.as_ref()),
    };
    started.map_err(|failure| match failure {
        Failure::Command(error) => NotStarted::new(name, error, place),
        Failure::Directory(error) => NotStarted::not_there(name, &order.directory, &error, place),
    })
}

/// The streams of a process that somebody else makes, whose number the order says: our ends of them, and its own.
pub fn adopt(order: &Order) -> io::Result<(Running, Vec<OwnedFd>)> {
    let numbers = order.arguments.iter().map(|word| std::str::from_utf8(word).ok()?.parse().ok());
    let numbers = numbers.collect::<Option<Vec<u32>>>().ok_or(io::ErrorKind::InvalidInput)?;
    let pid = *numbers.first().ok_or(io::ErrorKind::InvalidInput)?;
    if let Some(size) = order.terminal {
        let number = *numbers.get(1).ok_or(io::ErrorKind::InvalidInput)?;
        let (master, terminal) = terminal_of_number(number, size)?;
        return Ok((on_terminal(pid, master)?, vec![terminal]));
    }
    let [(input, stdin), (stdout, output), (stderr, errors)] =
        [io::pipe()?, io::pipe()?, io::pipe()?];
    let running = Running {
        pid,
        stdin: stdin.into(),
        stdout: stdout.into(),
        stderr: Some(stderr.into()),
        terminal: None,
    };
    Ok((running, vec![input.into(), output.into(), errors.into()]))
}

/// A terminal: the master, and itself.
fn new_terminal((rows, columns): (u16, u16)) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    set_size(&master, rows, columns)?;
    let terminal = ioctl_tiocgptpeer(&master, flags)?;
    Ok((master, terminal))
}

/// The terminal with this number: those below are had for a moment.
fn terminal_of_number(number: u32, size: (u16, u16)) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut lower = Vec::new();
    for _ in 0..=number {
        let (master, terminal) = new_terminal(size)?;
        if number_of(&master)? == Some(number) {
            return Ok((master, terminal));
        }
        lower.push((master, terminal));
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// The number of a terminal, of its master.
pub fn number_of(master: &OwnedFd) -> io::Result<Option<u32>> {
    let name = ptsname(master, Vec::new())?.into_string().unwrap_or_default();
    Ok(name.rsplit('/').next().and_then(|number| number.parse().ok()))
}

/// A command on a terminal.
fn on_terminal(pid: u32, master: OwnedFd) -> io::Result<Running> {
    Ok(Running {
        pid,
        stdin: master.try_clone()?,
        stdout: master.try_clone()?,
        stderr: None,
        terminal: Some(master),
    })
}

/// What a command did not start for.
enum Failure {
    /// Its working directory.
    Directory(io::Error),
    /// Itself, or one of its streams.
    Command(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Command(error)
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Failure {
        Failure::Command(error.into())
    }
}

fn configure<'a>(command: &'a mut Command, order: &Order, user: Option<&User>) -> &'a mut Command {
    command.env_clear();
    if let Some(user) = user {
        command.env("HOME", OsStr::from_bytes(&user.home));
    }
    for item in &order.environment {
        let at = item.iter().position(|&byte| byte == b'=').unwrap_or(item.len());
        let (name, value) = item.split_at(at);
        if !name.is_empty() {
            let value = value.strip_prefix(b"=").unwrap_or(value);
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
    }
    command.current_dir(OsStr::from_bytes(&order.directory))
}

fn start_on_pipes(order: &Order, user: Option<&User>) -> Result<Running, Failure> {
    let words = order.arguments.iter().map(|argument| OsStr::from_bytes(argument));
    let mut command = match order.is_own {
        true => Command::new("/proc/self/exe"),
        false => Command::new(OsStr::from_bytes(&order.arguments[0])),
    };
    match order.is_own {
        true => command.arg0(COPY_NAME).arg(user::owner()).args(words),
        false => command.args(words.skip(1)),
    };
    let [has_no_input, has_no_output, has_no_errors] = order.closed;
    let (stdout, output) = io::pipe()?;
    let (stderr, errors) = match order.joins_streams {
        true => (None, output.try_clone()?),
        false => io::pipe().map(|(ours, theirs)| (Some(ours.into()), theirs))?,
    };
    configure(&mut command, order, user)
        .stdin(if has_no_input { closed(true)? } else { Stdio::piped() })
        .stdout(if has_no_output { closed(false)? } else { output.into() })
        .stderr(if has_no_errors { closed(false)? } else { errors.into() })
        .process_group(0);
    let mut child = spawn(command, &order.directory, user)?;
    // A closed input is a pipe that nobody reads.
    let (_, nobody) = io::pipe()?;
    Ok(Running {
        pid: child.id(),
        stdin: child.stdin.take().map_or_else(|| nobody.into(), OwnedFd::from),
        stdout: stdout.into(),
        stderr,
        terminal: None,
    })
}

/// A stream that fails as a closed one does (EBADF): it is open for the other direction.
fn closed(is_input: bool) -> io::Result<Stdio> {
    Ok(File::options().read(!is_input).write(is_input).open("/dev/null")?.into())
}

fn start_on_terminal(
    order: &Order,
    user: Option<&User>,
    size: (u16, u16),
    place: &str,
) -> Result<Running, Failure> {
    let (master, terminal) = new_terminal(size)?;
    if let Some(user) = user {
        // It may open its terminal by name.
        fchown(&terminal, Some(Uid::from_raw(user.uid)), None)?;
    }
    let mut command = Command::new("/proc/self/exe");
    configure(&mut command, order, user)
        .arg0(SESSION_NAME)
        .arg(place)
        .args(order.arguments.iter().map(|argument| OsStr::from_bytes(argument)))
        .stdin(terminal.try_clone()?)
        .stdout(terminal.try_clone()?)
        .stderr(terminal);
    let child = spawn(command, &order.directory, user)?;
    Ok(on_terminal(child.id(), master)?)
}

/// Starts a command as a user. Rust's library would leave all groups; so a thread becomes the user, which on
/// Linux each can for itself, and starts what inherits that.
fn spawn(mut command: Command, directory: &[u8], user: Option<&User>) -> Result<Child, Failure> {
    // The last part has it that the user may enter it, too.
    let inside = Path::new(OsStr::from_bytes(directory)).join(".");
    let mut start = || {
        user.map_or(Ok(()), User::assume)?;
        std::fs::metadata(&inside).map_err(Failure::Directory)?;
        Ok(command.spawn()?)
    };
    if user.is_none() {
        return start();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, start)?;
        let lost = |_| Err(io::Error::other("the thread that starts it failed").into());
        thread.join().unwrap_or_else(lost)
    })
}

/// Tells the terminal its size; the kernel tells its foreground processes.
pub fn set_size(terminal: &OwnedFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal, size)?)
}

/// What init does under the name [`SESSION_NAME`]: leads a session on its standard input and
/// becomes the command. The first argument says where that is, the others are the command. Returns only if it cannot.
pub fn run_session(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(place), Some(name)) = (arguments.next(), arguments.next()) else {
        return ExitCode::from(STATUS_NOT_FOUND);
    };
    let led = rustix::process::setsid()
        .and_then(|_| rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()));
    let error = match led {
        Ok(()) => Command::new(&name).args(arguments).exec(),
        Err(error) => error.into(),
    };
    let failure = NotStarted::new(&name, error, &place.to_string_lossy());
    eprintln!("{failure}");
    ExitCode::from(failure.status)
}

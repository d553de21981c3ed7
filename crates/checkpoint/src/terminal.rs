//! What waits in a terminal is taken out and put back.
//!
//! Nobody tells what a terminal's queues hold; it can only be read, which empties them. So what is found is written
//! again, into the very terminal (its processes go on) or into a new one, by a slave of our own and the master:
//!
//! 1. Output is what a slave writes while the terminal changes nothing of it (`OPOST` off).
//! 2. Input is what the master writes while no character means anything (`ISIG`, `ECHO`, ... off). In canonical mode
//!    lines are put back as lines: only the ends of lines and files mean something, and the latter is a byte that is
//!    not in the input. So the unfinished line stays one that can be edited.
//! 3. The kernel handles input a moment after it was written. The last byte is one that holds output back, so that
//!    the slave cannot be written to: when that is seen, all before it has been handled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use host::processes::terminal::{self, SETTINGS_BYTES, Switch};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::limits::{MAX_TERMINAL_BYTES, TERMINAL_PATIENCE};
use crate::state::{Bytes, InputLine, Queues};

/// `struct termios2`: four words of flags, the discipline, 19 characters, two speeds.
pub(crate) type Settings = [u8; SETTINGS_BYTES];

const INPUT: usize = 0;
const OUTPUT: usize = 4;
const LOCAL: usize = 12;
const CHARACTERS: usize = 17;
const CHARACTER_COUNT: usize = 19;
/// How many bytes of input are handled at once, before somebody reads (`N_TTY_BUF_SIZE` has 4,096).
const HANDLED_BYTES: usize = 4000;

fn flags(settings: &Settings, at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|index| settings[at + index]))
}

fn set_flags(settings: &mut Settings, at: usize, flags: u32) {
    settings[at..at + 4].copy_from_slice(&flags.to_ne_bytes());
}

/// Whether input is read by lines.
fn is_canonical(settings: &Settings) -> bool {
    let local = flags(settings, LOCAL);
    local & libc::ICANON != 0 && local & libc::EXTPROC == 0
}

/// A description that does not block while this lives.
struct Unblocked<'a> {
    file: BorrowedFd<'a>,
    before: OFlags,
}

impl<'a> Unblocked<'a> {
    fn new(file: BorrowedFd<'a>) -> io::Result<Self> {
        let before = fcntl_getfl(file)?;
        fcntl_setfl(file, before | OFlags::NONBLOCK)?;
        Ok(Self { file, before })
    }
}

impl Drop for Unblocked<'_> {
    fn drop(&mut self) {
        let _ = fcntl_setfl(self.file, self.before);
    }
}

/// Both sides of a terminal, for a while: it tells nothing in packets, and does not block.
pub(crate) struct Sides<'a> {
    master: Unblocked<'a>,
    slave: OwnedFd,
    packets: bool,
}

impl<'a> Sides<'a> {
    /// Of a master whose slave may be opened, and has been.
    pub fn open(master: &'a OwnedFd) -> io::Result<Self> {
        let packets = terminal::number(master, terminal::Number::Packets)? != 0;
        let slave = terminal::open_peer(master)?;
        let master = Unblocked::new(master.as_fd())?;
        if packets {
            terminal::set(master.file, Switch::Packets, false)?;
        }
        Ok(Self { master, slave, packets })
    }

    /// Take out what waits, output too if `with_output`.
    pub fn take(&self, with_output: bool) -> io::Result<Queues> {
        let settings = terminal::settings(&self.slave)?;
        let output = if with_output { read_all(self.master.file)? } else { Vec::new() };
        let held = !is_writable(&self.slave)?;
        let mut quiet = settings;
        let local = flags(&settings, LOCAL) & (libc::ICANON | libc::EXTPROC);
        set_flags(&mut quiet, LOCAL, local);
        let mut lines = Vec::new();
        if is_canonical(&settings) {
            terminal::set_settings(&self.slave, &quiet)?;
            lines = read_lines(&self.slave, &settings)?;
        }
        set_flags(&mut quiet, LOCAL, 0);
        quiet[CHARACTERS + libc::VMIN] = 1;
        quiet[CHARACTERS + libc::VTIME] = 0;
        terminal::set_settings(&self.slave, &quiet)?;
        let rest = Bytes(read_all(self.slave.as_fd())?);
        terminal::set_settings(&self.slave, &settings)?;
        Ok(Queues { lines, rest, output: Bytes(output), held })
    }

    /// Put back what waited, and have `settings`.
    pub fn put(&self, queues: &Queues, settings: &Settings) -> io::Result<()> {
        let all = || queues.lines.iter().map(|line| &line.bytes).chain([&queues.rest]);
        let is_free = |byte: &u8| !all().any(|bytes| bytes.contains(byte));
        let mut free = (1..=u8::MAX).filter(is_free);
        let (Some(stop), Some(start), Some(end)) = (free.next(), free.next(), free.next()) else {
            return Err(io::Error::other("its input has all bytes that there are"));
        };
        let mut plain = *settings;
        let canonical = flags(settings, LOCAL) & (libc::ICANON | libc::EXTPROC | libc::IEXTEN);
        set_flags(&mut plain, INPUT, libc::IXON);
        set_flags(&mut plain, OUTPUT, 0);
        set_flags(&mut plain, LOCAL, canonical);
        let ends = [libc::VEOL, libc::VEOL2].map(|at| (at, settings[CHARACTERS + at]));
        plain[CHARACTERS..CHARACTERS + CHARACTER_COUNT].fill(0);
        let own = [(libc::VSTOP, stop), (libc::VSTART, start), (libc::VEOF, end), (libc::VMIN, 1)];
        for (at, byte) in ends.into_iter().chain(own) {
            plain[CHARACTERS + at] = byte;
        }
        terminal::set_settings(&self.slave, &plain)?;
        terminal::set(&self.slave, Switch::Held, false)?;
        write_all(self.master.file, &[start])?;
        self.wait(true)?;
        write_all(self.slave.as_fd(), &queues.output)?;
        let mut input = Vec::new();
        for line in &queues.lines {
            input.extend_from_slice(&line.bytes);
            input.extend(line.end_of_file.then_some(end));
        }
        input.extend_from_slice(&queues.rest);
        let is_full = input.len() > HANDLED_BYTES;
        if !is_full {
            input.push(stop);
        }
        write_all(self.master.file, &input)?;
        match is_full {
            // What follows is not handled before somebody reads.
            true => std::thread::sleep(Duration::from_millis(20)),
            false => self.wait(false)?,
        }
        if !queues.held && !is_full {
            write_all(self.master.file, &[start])?;
            self.wait(true)?;
        }
        terminal::set_settings(&self.slave, settings)?;
        if queues.held && (is_full || flags(settings, INPUT) & libc::IXON == 0) {
            terminal::set(&self.slave, Switch::Held, true)?;
        }
        Ok(())
    }

    /// The line discipline; 0 is the usual one.
    pub fn discipline(&self) -> io::Result<u32> {
        terminal::number(&self.slave, terminal::Number::Discipline)
    }

    /// Whether the slave may be written to now.
    pub fn is_writable(&self) -> io::Result<bool> {
        is_writable(&self.slave)
    }

    /// Wait until the slave may be written to, or not.
    fn wait(&self, wanted: bool) -> io::Result<()> {
        let deadline = Instant::now() + TERMINAL_PATIENCE;
        while is_writable(&self.slave)? != wanted {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }
}

impl Drop for Sides<'_> {
    fn drop(&mut self) {
        if self.packets {
            let _ = terminal::set(self.master.file, Switch::Packets, true);
        }
    }
}

fn is_writable(file: impl AsFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(&file, PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(polled[0].revents().contains(PollFlags::OUT))
}

/// Read what there is.
fn read_all(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut bytes = [0; 8192];
    loop {
        match rustix::io::read(file, &mut bytes) {
            // Nobody has the other side (`EIO`).
            Ok(0) | Err(Errno::AGAIN | Errno::IO) => return Ok(all),
            Ok(read) => all.extend_from_slice(&bytes[..read]),
            Err(error) => return Err(error.into()),
        }
        if all.len() > MAX_TERMINAL_BYTES {
            return Err(io::Error::other("more waits in it than a terminal holds"));
        }
    }
}

/// Read the lines that there are.
fn read_lines(file: &OwnedFd, settings: &Settings) -> io::Result<Vec<InputLine>> {
    let ends = [libc::VEOL, libc::VEOL2].map(|at| settings[CHARACTERS + at]);
    let mut lines = Vec::new();
    let mut bytes = [0; 8192];
    while lines.len() <= MAX_TERMINAL_BYTES {
        match rustix::io::read(file, &mut bytes) {
            Ok(read) => {
                let bytes = Bytes(bytes[..read].to_vec());
                let last = bytes.last().copied().unwrap_or(0);
                let end_of_file = !(last == b'\n' || last != 0 && ends.contains(&last));
                lines.push(InputLine { bytes, end_of_file });
            }
            Err(Errno::AGAIN) => return Ok(lines),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("more waits in it than a terminal holds"))
}

/// Write all, at once: what was in a terminal has room in it.
fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + TERMINAL_PATIENCE;
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::AGAIN) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_micros(100));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

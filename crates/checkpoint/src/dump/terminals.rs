//! Terminals that are open, or control a session.
//!
//! All is asked of the master, which a process of the tree has or a slot names. What waits in a terminal is taken out
//! and put back (see [`crate::terminal`]). A slave of our own does not change what the master sees, if there was one
//! before: so a terminal whose slave nobody has ever opened is left alone.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use host::processes::identity;
use host::processes::terminal::{self, Number, Switch};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::Names;
use crate::error::Error;
use crate::freeze::Frozen;
use crate::limits::MAX_TERMINALS;
use crate::proc::descriptor::Line;
use crate::proc::stat::Stat;
use crate::refuse;
use crate::slots::Slots;
use crate::state::{Bytes, OpenFile, Queues, Terminal, TerminalEnd};
use crate::terminal::Sides;

/// The major number of slaves.
const SLAVES: u32 = 136;
/// Who made the first one.
const MULTIPLEXER: &str = "/dev/ptmx";

/// What a device is, if it is a terminal.
pub(super) fn end(major: u32, minor: u32) -> Option<TerminalEnd> {
    match (major, minor) {
        (SLAVES, _) => Some(TerminalEnd::Slave),
        (5, 0) => Some(TerminalEnd::Controlling),
        (5, 2) => Some(TerminalEnd::Master),
        _ => None,
    }
}

#[derive(Default)]
struct Entry {
    /// Who has it, and the master if it is one of the tree.
    pid: u32,
    master: Option<(OwnedFd, String)>,
    /// A slave, or `/dev/tty`.
    slave: Option<OwnedFd>,
    session: u32,
    without: Vec<u32>,
}

/// Those that were found so far, by their numbers.
#[derive(Default)]
pub(super) struct Terminals(BTreeMap<u32, Entry>);

impl Terminals {
    /// A descriptor of one.
    pub fn open(&mut self, pid: u32, line: &Line, end: TerminalEnd) -> Result<OpenFile, Error> {
        let process = identity::open_process(pid).map_err(Error::io("open a process"))?;
        let file = identity::descriptor_of(&process, line.number);
        let file = file.map_err(Error::io(format!("take {} of process {pid}", line.link)))?;
        // The device is that of the slave, whatever it was opened by.
        let device = match terminal::number(&file, Number::Device) {
            Err(error) if is_hung_up(&error, end) => return Ok(OpenFile::HungUp),
            device => device.map_err(Error::io(format!("look at {}", line.link)))?,
        };
        let (major, index) = split(device);
        if major != SLAVES || index >= MAX_TERMINALS {
            let what = format!("has {} open, which is no pseudoterminal", line.link);
            return Err(Error::unsupported(pid, what));
        }
        if line.links == 0 || !refuse::names(pid, &line.link, line.inode) {
            let what = format!("has {} open, which has no name in its pod", line.link);
            return Err(Error::unsupported(pid, what));
        }
        let entry = self.0.entry(index).or_insert_with(|| Entry { pid, ..Entry::default() });
        match end {
            TerminalEnd::Master => entry.master = Some((file, line.link.clone())),
            TerminalEnd::Slave | TerminalEnd::Controlling => entry.slave = Some(file),
        }
        Ok(OpenFile::Terminal { index, end })
    }

    /// When all are found.
    pub fn finish(
        mut self,
        frozen: &Frozen,
        names: &Names,
        slots: &Slots,
    ) -> Result<Vec<Terminal>, Error> {
        self.sessions(frozen, names)?;
        let dump = |(index, entry)| dump(index, entry, names, slots);
        self.0.into_iter().map(dump).collect()
    }

    /// Which sessions they control.
    fn sessions(&mut self, frozen: &Frozen, names: &Names) -> Result<(), Error> {
        let mut members: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for &pid in frozen.processes.keys() {
            let stat = Stat::read(pid, "stat")?;
            let session = names.own(u32::try_from(stat.field(6)?).unwrap_or(0));
            // A session of others has what is theirs.
            if session != 0 {
                let device = u32::try_from(stat.signed(7)? & 0xffff_ffff).unwrap_or(0);
                members.entry(session).or_default().push((pid, device));
            }
        }
        for (session, members) in members {
            let Some((pid, device)) = members.iter().find(|(_, device)| *device != 0) else {
                continue;
            };
            let (major, index) = split(*device);
            let has_another = |other: u32| other != 0 && other != *device;
            let leader = members.iter().find(|(pid, _)| names.own(*pid) == session);
            if major != SLAVES
                || index >= MAX_TERMINALS
                || members.iter().any(|(_, other)| has_another(*other))
                || leader.is_none_or(|(_, device)| *device == 0)
            {
                let what = "is in a session whose terminal cannot be taken again by its leader";
                return Err(Error::unsupported(*pid, what));
            }
            let entry = self.0.entry(index);
            let entry = entry.or_insert_with(|| Entry { pid: *pid, ..Entry::default() });
            entry.session = session;
            let without = members.iter().filter(|(_, device)| *device == 0);
            entry.without = without.map(|(pid, _)| names.own(*pid)).collect();
            entry.without.sort_unstable();
        }
        Ok(())
    }
}

/// Whether that is what a slave answers to all questions whose master is no more.
fn is_hung_up(error: &std::io::Error, end: TerminalEnd) -> bool {
    end != TerminalEnd::Master && error.raw_os_error() == Some(libc::EIO)
}

/// The parts of a device's number, as the kernel gives it to user space in 32 bits.
fn split(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00)
}

fn dump(index: u32, entry: Entry, names: &Names, slots: &Slots) -> Result<Terminal, Error> {
    let Entry { pid, master, slave, session, without } = entry;
    let (slot, multiplexer, own);
    let master = match (master, slots.terminal(index)) {
        (Some((master, path)), _) => {
            (slot, multiplexer, own) = (None, path, master);
            &own
        }
        (None, Some((name, master))) => {
            (slot, multiplexer) = (Some(name.to_owned()), MULTIPLEXER.to_owned());
            master
        }
        (None, None) => {
            let what = format!("has the terminal {index}, whose master is not in the tree");
            return Err(Error::unsupported(pid, what));
        }
    };
    let failed = |source| Error::Io { what: format!("look at the terminal {index}"), source };
    let number = |what| terminal::number(master, what).map_err(failed);
    let is_on = |what| number(what).map(|number| number != 0);
    let exclusive = slave.as_ref().map(|slave| terminal::number(slave, Number::Exclusive));
    let size = rustix::termios::tcgetwinsize(master).map_err(|error| failed(error.into()))?;
    let group = number(Number::Group).unwrap_or(0);
    let mut terminal = Terminal {
        index,
        slot,
        multiplexer,
        settings: Bytes(terminal::settings(master).map_err(failed)?.to_vec()),
        size: [size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel],
        locked: is_on(Number::Locked)?,
        packets: is_on(Number::Packets)?,
        exclusive: exclusive.transpose().map_err(failed)?.unwrap_or(0) != 0,
        opened: slave.is_some()
            || session != 0
            || was_open(master).map_err(|error| failed(error.into()))?,
        queues: Queues::default(),
        session,
        foreground: if session == 0 { 0 } else { names.own(group) },
        without,
    };
    if terminal.opened {
        queues(pid, master, slave.as_ref(), &mut terminal)?;
    }
    Ok(terminal)
}

/// Whether there was a slave, and is none any more.
fn was_open(master: &OwnedFd) -> rustix::io::Result<bool> {
    let mut polled = [PollFd::new(master, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(polled[0].revents().contains(PollFlags::HUP))
}

/// What waits in a terminal. It is taken out, and put back.
fn queues(
    pid: u32,
    master: &OwnedFd,
    slave: Option<&OwnedFd>,
    terminal: &mut Terminal,
) -> Result<(), Error> {
    let index = terminal.index;
    let failed = |what: &'static str| {
        move |source| Error::Io { what: format!("{what} the terminal {index}"), source }
    };
    // Exclusive is what a slave is, locked what a master's slave is.
    let closed = [
        Some((Switch::Locked, master)).filter(|_| terminal.locked),
        slave.map(|slave| (Switch::Exclusive, slave)).filter(|_| terminal.exclusive),
    ];
    for (switch, side) in closed.into_iter().flatten() {
        terminal::set(side, switch, false).map_err(failed("open"))?;
    }
    let result = Sides::open(master).map_err(failed("open")).and_then(|sides| {
        if sides.discipline().map_err(failed("look at"))? != 0 {
            return Err(Error::unsupported(pid, "has a terminal with another line discipline"));
        }
        let is_ours = terminal.slot.is_none();
        if !is_ours && !sides.is_writable().map_err(failed("look at"))? {
            let what = format!("has the terminal {index}, whose output is held back or not read");
            return Err(Error::unsupported(pid, what));
        }
        let settings = terminal::settings(master).map_err(failed("look at"))?;
        let queues = sides.take(is_ours).map_err(failed("read"));
        // Should it fail, nothing that was read is lost but what led to the failure.
        let put = sides.put(queues.as_ref().unwrap_or(&Queues::default()), &settings);
        terminal.queues = queues?;
        put.map_err(failed("put back what waits in"))
    });
    for (switch, side) in closed.into_iter().flatten() {
        terminal::set(side, switch, true).map_err(failed("close"))?;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_split() {
        assert_eq!(split(0x8803), (136, 3));
        assert_eq!(split(0x88_00 | 0x34 | 0x12 << 20), (136, 0x1234));
    }
}

//! Terminals: the seed makes those whose masters are in the tree, with their numbers, and gets the others' masters.
//!
//! Terminals that were hung up come last: the master of a new one is closed, whatever its number is.
//!
//! It keeps a slave of each until the leaders of sessions have taken them. A description of `/dev/tty` is made by a
//! child of the seed that has its descriptors and, for a moment, a session of its own which the terminal controls.

use std::os::fd::OwnedFd;

use host::processes::identity;
use host::processes::terminal::{self, Number, OPEN_PEER, Switch};
use inject::{Area, Seat};

use super::opened::{Opened, move_to, opened_with};
use super::plan::Plan;
use crate::error::Error;
use crate::limits::MAX_TERMINALS;
use crate::state::{Description, OpenFile, Process, State, Terminal, TerminalEnd};
use crate::terminal::{Settings, Sides};

/// What makes a new one.
const MULTIPLEXER: &str = "/dev/ptmx";
const HERE: u64 = i64::cast_unsigned(libc::AT_FDCWD as i64);
/// How a slave is opened that is nobody's controlling terminal.
const PLAIN: u32 = (libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK).cast_unsigned();
/// `O_NOCTTY`.
const UNCONTROLLED: u32 = libc::O_NOCTTY.cast_unsigned();

/// A terminal that the seed has.
pub(super) struct Made<'a> {
    terminal: &'a Terminal,
    /// The seed's descriptor of the master.
    pub master: u64,
    /// Ours.
    file: OwnedFd,
}

/// How many descriptors the seed has on the way.
pub(super) fn count(state: &State) -> usize {
    // A master and a slave of one that is hung up come and go.
    2 + state.terminals.last().map_or(0, |last| last.index as usize + 2 + 2 * state.terminals.len())
}

fn failed(terminal: &Terminal) -> impl FnOnce(std::io::Error) -> Error + Copy + use<> {
    let index = terminal.index;
    move |source| Error::Io { what: format!("make the terminal {index} as it was"), source }
}

/// Make all, with what waits in them. `given` finds the seed's descriptor of what takes the place of a slot.
pub(super) fn make<'a>(
    seat: &Seat,
    area: &Area,
    opened: Opened,
    state: &'a State,
    given: impl Fn(&str) -> Option<u64>,
) -> Result<Vec<Made<'a>>, Error> {
    let process = identity::open_process(seat.task()).map_err(Error::io("open the seed"))?;
    let (mut made, mut spare) = (Vec::new(), Vec::new());
    for (place, terminal) in state.terminals.iter().enumerate() {
        let (master, file) = match &terminal.slot {
            Some(name) => take(&process, terminal, given(name))?,
            None => create(seat, area, &process, terminal, state, &mut spare)?,
        };
        terminal::set(&file, Switch::Locked, false).map_err(failed(terminal))?;
        if terminal.opened {
            let mut plan = Plan::new(0, seat, area);
            plan.must("open a terminal", libc::SYS_ioctl, [master, OPEN_PEER, PLAIN.into()]);
            let low = plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned();
            let mut plan = Plan::new(0, seat, area);
            move_to(&mut plan, low, opened.terminal(place));
            plan.run()?;
        }
        fill(&file, terminal)?;
        made.push(Made { terminal, master, file });
    }
    let mut plan = Plan::new(0, seat, area);
    for number in spare {
        plan.may(libc::SYS_close, [number]);
        plan.flush_if_full()?;
    }
    plan.run()?;
    Ok(made)
}

fn take(
    process: &OwnedFd,
    terminal: &Terminal,
    given: Option<u64>,
) -> Result<(u64, OwnedFd), Error> {
    let master = given.unwrap_or(u64::MAX);
    let file = identity::descriptor_of(process, u32::try_from(master).unwrap_or(u32::MAX));
    let file = file.map_err(failed(terminal))?;
    let index = terminal::number(&file, Number::Index).map_err(failed(terminal))?;
    match index == terminal.index {
        true => Ok((master, file)),
        false => {
            let wanted = terminal.index;
            Err(Error::Host(format!("terminal {index} is given in place of terminal {wanted}")))
        }
    }
}

/// Make terminals until one has the right number.
fn create(
    seat: &Seat,
    area: &Area,
    process: &OwnedFd,
    terminal: &Terminal,
    state: &State,
    spare: &mut Vec<u64>,
) -> Result<(u64, OwnedFd), Error> {
    let end = OpenFile::Terminal { index: terminal.index, end: TerminalEnd::Master };
    let description = state.descriptions.iter().find(|description| description.file == end);
    let flags = description.map_or(0, |one| opened_with(one.flags)) | UNCONTROLLED;
    for _ in 0..MAX_TERMINALS {
        let mut plan = Plan::new(0, seat, area);
        let path = plan.string(&terminal.multiplexer);
        let purpose = format!("open {}", terminal.multiplexer);
        plan.must(purpose, libc::SYS_openat, [HERE, path, flags.into(), 0]);
        let master = plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned();
        let file = identity::descriptor_of(process, u32::try_from(master).unwrap_or(u32::MAX));
        let file = file.map_err(failed(terminal))?;
        let index = terminal::number(&file, Number::Index).map_err(failed(terminal))?;
        if index == terminal.index {
            return Ok((master, file));
        }
        spare.push(master);
        // The lowest free number comes next.
        if index > terminal.index {
            break;
        }
    }
    Err(Error::Host(format!("the number of its terminal {} is in use", terminal.index)))
}

/// Have its settings, and what waits.
fn fill(master: &OwnedFd, terminal: &Terminal) -> Result<(), Error> {
    let settings = Settings::try_from(&*terminal.settings);
    let settings = settings.map_err(|_| Error::Image("a terminal is wrong".to_owned()))?;
    let [ws_row, ws_col, ws_xpixel, ws_ypixel] = terminal.size;
    let size = rustix::termios::Winsize { ws_row, ws_col, ws_xpixel, ws_ypixel };
    let sized = rustix::termios::tcsetwinsize(master, size);
    sized.map_err(|error| failed(terminal)(error.into()))?;
    if terminal.opened {
        let sides = Sides::open(master).map_err(failed(terminal))?;
        // Only what input it is decides how it is put in.
        terminal::set_settings(master, &settings).map_err(failed(terminal))?;
        sides.put(&terminal.queues, &settings).map_err(failed(terminal))?;
    } else {
        terminal::set_settings(master, &settings).map_err(failed(terminal))?;
    }
    terminal::set(master, Switch::Packets, terminal.packets).map_err(failed(terminal))
}

/// Add the call that opens a description of one; whether it is one that can be opened so.
pub(super) fn open(plan: &mut Plan<'_>, made: &[Made<'_>], description: &Description) -> bool {
    let OpenFile::Terminal { index, end } = description.file else { return false };
    let Some(made) = made.iter().find(|made| made.terminal.index == index) else { return false };
    let flags = opened_with(description.flags) | UNCONTROLLED;
    match end {
        TerminalEnd::Master => plan.must("take a terminal", libc::SYS_dup, [made.master]),
        TerminalEnd::Slave => {
            let arguments = [made.master, OPEN_PEER, flags.into()];
            plan.must("open a terminal", libc::SYS_ioctl, arguments);
        }
        TerminalEnd::Controlling => return false,
    }
    true
}

/// When all descriptions but those of `/dev/tty` are there: these, and what would have kept us out.
pub(super) fn finish(
    seat: &Seat,
    area: &Area,
    opened: Opened,
    state: &State,
    made: Vec<Made<'_>>,
) -> Result<(), Error> {
    let process = identity::open_process(seat.task()).map_err(Error::io("open the seed"))?;
    for (place, made) in made.into_iter().enumerate() {
        let Made { terminal, master, file } = made;
        let is_its = |one: &&(usize, &Description)| {
            let end = TerminalEnd::Controlling;
            one.1.file == OpenFile::Terminal { index: terminal.index, end }
        };
        let all = state.descriptions.iter().enumerate();
        let all: Vec<_> = all.filter(|one| is_its(&one)).collect();
        if !all.is_empty() {
            controlling(seat, area, opened, opened.terminal(place), &all)?;
        }
        if terminal.locked {
            terminal::set(&file, Switch::Locked, true).map_err(failed(terminal))?;
        }
        if terminal.exclusive && terminal.opened {
            let number = u32::try_from(opened.terminal(place)).unwrap_or(u32::MAX);
            let slave = identity::descriptor_of(&process, number).map_err(failed(terminal))?;
            terminal::set(&slave, Switch::Exclusive, true).map_err(failed(terminal))?;
        }
        let mut plan = Plan::new(0, seat, area);
        plan.may(libc::SYS_close, [master]);
        plan.run()?;
    }
    for (index, description) in state.descriptions.iter().enumerate() {
        if description.file == OpenFile::HungUp {
            hang_up(
                seat,
                area,
                &process,
                opened_with(description.flags),
                opened.description(index),
            )?;
        }
    }
    Ok(())
}

/// Open a terminal as `number`, with those flags, and have it be hung up.
fn hang_up(
    seat: &Seat,
    area: &Area,
    process: &OwnedFd,
    flags: u32,
    number: u64,
) -> Result<(), Error> {
    let failed = || Error::io("have a terminal be hung up");
    let call = |call: i64, arguments: [u64; 4]| {
        let mut plan = Plan::new(0, seat, area);
        plan.must("have a terminal be hung up", call, arguments);
        Ok::<_, Error>(plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned())
    };
    let mut plan = Plan::new(0, seat, area);
    let path = plan.string(MULTIPLEXER);
    plan.must(format!("open {MULTIPLEXER}"), libc::SYS_openat, [HERE, path, PLAIN.into(), 0]);
    let master = plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned();
    let file = identity::descriptor_of(process, u32::try_from(master).unwrap_or(u32::MAX));
    let file = file.map_err(failed())?;
    terminal::set(&file, Switch::Locked, false).map_err(failed())?;
    drop(file);
    let flags = (flags | UNCONTROLLED).into();
    let slave = call(libc::SYS_ioctl, [master, OPEN_PEER, flags, 0])?;
    call(libc::SYS_close, [master, 0, 0, 0])?;
    let mut plan = Plan::new(0, seat, area);
    move_to(&mut plan, slave, number);
    plan.run().map(drop)
}

/// Open `/dev/tty`, in a child that has the seed's descriptors and ends again.
fn controlling(
    seat: &Seat,
    area: &Area,
    opened: Opened,
    slave: u64,
    all: &[(usize, &Description)],
) -> Result<(), Error> {
    let mut plan = Plan::new(0, seat, area);
    let flags = libc::CLONE_FILES.cast_unsigned().into();
    plan.must("make a process that opens /dev/tty", libc::SYS_clone, [flags, 0, 0, 0, 0]);
    let outcome = plan.run()?;
    let own = outcome.results.first().copied().unwrap_or(0).cast_unsigned();
    let &[task] = outcome.children.as_slice() else { return Err(Error::Gone(seat.task())) };
    let result = super::task::wait_for_birth(task).and_then(|()| {
        let child = Seat::take(task, 0)?;
        let area = Area::attach(task, area.base(), false)?;
        let mut plan = Plan::new(0, &child, &area);
        plan.must("make a session", libc::SYS_setsid, []);
        plan.must("take a terminal", libc::SYS_ioctl, [slave, libc::TIOCSCTTY, 0]);
        plan.run()?;
        for (index, description) in all {
            let mut plan = Plan::new(0, &child, &area);
            let path = plan.string("/dev/tty");
            let flags = opened_with(description.flags).into();
            plan.must("open /dev/tty", libc::SYS_openat, [HERE, path, flags, 0]);
            let low = plan.run()?.results.first().copied().unwrap_or(-1).cast_unsigned();
            let mut plan = Plan::new(0, &child, &area);
            move_to(&mut plan, low, opened.description(*index));
            plan.run()?;
        }
        super::task::end(&super::Made { pid: 0, seat: child, area, threads: Vec::new() }, 0)
    });
    if result.is_err() {
        super::task::kill(task);
    }
    // It is nobody's business that it was there.
    let mut plan = Plan::new(0, seat, area);
    let all = libc::__WALL.cast_unsigned().into();
    plan.must("wait for a process that opened /dev/tty", libc::SYS_wait4, [own, 0, all, 0]);
    result.and(plan.run().map(drop))
}

/// Have the terminal of its session, for a process that has just become the leader of it.
pub(super) fn control(plan: &mut Plan<'_>, state: &State, leader: &Process, opened: Opened) {
    for (place, terminal) in state.terminals.iter().enumerate() {
        if terminal.session == leader.pid {
            let arguments = [opened.terminal(place), libc::TIOCSCTTY, 0];
            plan.must("take the terminal of its session", libc::SYS_ioctl, arguments);
        }
    }
}

/// When all have joined their groups: say which is in the foreground. The leader of the session does.
pub(super) fn foreground(plan: &mut Plan<'_>, state: &State, leader: &Process, opened: Opened) {
    for (place, terminal) in state.terminals.iter().enumerate() {
        if terminal.session == leader.pid && terminal.foreground != 0 {
            let group = plan.words(&[terminal.foreground.into()]);
            let arguments = [opened.terminal(place), libc::TIOCSPGRP, group];
            plan.must("put a process group into the foreground", libc::SYS_ioctl, arguments);
        }
    }
}

/// Give up the terminal of its session, if it had.
pub(super) fn leave(plan: &mut Plan<'_>, state: &State, process: &Process, opened: Opened) {
    for (place, terminal) in state.terminals.iter().enumerate() {
        if terminal.without.contains(&process.pid) {
            let arguments = [opened.terminal(place), libc::TIOCNOTTY, 0];
            plan.must("give up its terminal", libc::SYS_ioctl, arguments);
        }
    }
}

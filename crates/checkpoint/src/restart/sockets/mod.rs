//! Sockets: the seed makes them, and we set what can be set through descriptors of our own.
//!
//! They are made before files are opened, and their queues are filled when all are open: descriptors may be on their
//! way in them, of sockets too.

mod actor;
mod connections;
mod datagrams;
mod ended;
mod groups;
mod inet;
mod left;
mod names;
mod options;
mod packets;
mod queues;
mod unix;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use host::processes::identity;
use inject::{Area, Seat};
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use self::actor::Actors;
use super::Restarted;
use super::opened::Opened;
use crate::error::Error;
use crate::state::State;
use crate::state::sockets::{UnixKind, UnixRole};

/// The sockets, in the seed.
pub(super) struct Sockets {
    unix: unix::Made,
    /// The seed's descriptors of TCP and UDP sockets, by their places.
    inet: BTreeMap<usize, u64>,
    /// Its descriptors of the other ends of TCP connections that have ended, by the places of these.
    ends: BTreeMap<usize, u64>,
    /// The seed itself.
    process: OwnedFd,
}

/// Descriptors that the seed needs on the way, at the most.
pub(super) fn count(state: &State) -> usize {
    // An end that is left, a socket that listens for a moment, a directory, raw sockets.
    2 * state.sockets.len() + 6
}

/// Make them all.
pub(super) fn make(
    seat: &Seat,
    area: &Area,
    state: &State,
    restarted: &mut Restarted,
) -> Result<Sockets, Error> {
    let process = identity::open_process(seat.task()).map_err(Error::io("open the seed"))?;
    let (unix, inet, ends) = (unix::Made::default(), BTreeMap::new(), BTreeMap::new());
    let mut sockets = Sockets { unix, inet, ends, process };
    if state.sockets.is_empty() {
        return Ok(sockets);
    }
    let mut actors = Actors::new(seat, area, restarted)?;
    let made = unix::make(&mut actors, state);
    let dismissed = actors.dismiss();
    sockets.unix = made?;
    dismissed?;
    inet::make(&mut actors, state, &mut sockets)?;
    Ok(sockets)
}

impl Sockets {
    /// The seed's descriptor of a socket.
    pub fn low(&self, place: usize) -> u64 {
        let low = self.unix.lows.get(&place).or_else(|| self.inet.get(&place));
        low.copied().unwrap_or(u64::MAX)
    }

    /// A descriptor of ours for one of the seed's.
    fn take(&self, low: u64) -> Result<OwnedFd, Error> {
        let number = u32::try_from(low).unwrap_or(u32::MAX);
        identity::descriptor_of(&self.process, number).map_err(Error::io("take a socket"))
    }

    /// Everything that comes when all files are open: options, queues, what is shut down, names.
    pub fn complete(
        &self,
        seat: &Seat,
        area: &Area,
        state: &State,
        (opened, restarted): (Opened, &mut Restarted),
    ) -> Result<(), Error> {
        if state.sockets.is_empty() {
            return Ok(());
        }
        for (place, _) in unix::all(state) {
            options::set(&self.take(self.low(place))?, &state.sockets[place], false)?;
        }
        let mut actors = Actors::new(seat, area, restarted)?;
        let filled = queues::fill(&mut actors, state, self, opened)
            .and_then(|()| unix::connect_datagrams(&mut actors, state, &self.unix));
        let dismissed = actors.dismiss();
        let removed = self.unix.reached.values().map(|name| names::unlink(&mut actors, name));
        let removed = removed.collect::<Vec<_>>().into_iter().collect::<Result<Vec<()>, _>>();
        filled?;
        dismissed?;
        removed?;
        self.end(&mut actors, state)?;
        for (place, _) in unix::all(state) {
            options::set(&self.take(self.low(place))?, &state.sockets[place], true)?;
        }
        inet::complete(&mut actors, state, self)
    }

    /// Shut down what is, let go of those that are no more, and give the names their files.
    fn end(&self, actors: &mut Actors<'_>, state: &State) -> Result<(), Error> {
        for (place, socket) in unix::all(state) {
            if matches!(socket.role, UnixRole::Left { reset: true, .. }) {
                // What nobody will receive.
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let sent = send(self.take(self.low(place))?, &[0], flags);
                sent.map_err(Error::io("have a socket reset"))?;
            }
            let how = match socket.shutdown {
                1 => Shutdown::Read,
                2 => Shutdown::Write,
                3 => Shutdown::Both,
                _ => continue,
            };
            let is_stream = socket.kind != UnixKind::Datagrams;
            // The end of the other does that.
            if is_stream && matches!(socket.role, UnixRole::Left { .. }) {
                continue;
            }
            let done = shutdown(self.take(self.low(place))?, how);
            done.map_err(Error::io("shut a socket down"))?;
        }
        let mut plan = actors.plan();
        for low in self.unix.left.values() {
            plan.must("close a socket", libc::SYS_close, [*low]);
            plan.flush_if_full()?;
        }
        plan.run()?;
        for name in unix::all(state).filter_map(|(_, socket)| socket.name.as_ref()) {
            names::set_file(actors, name)?;
        }
        Ok(())
    }

    /// The seed's descriptors, to be closed when all have their numbers.
    pub fn lows(&self) -> impl Iterator<Item = u64> {
        self.unix.lows.values().chain(self.inet.values()).chain(self.ends.values()).copied()
    }
}

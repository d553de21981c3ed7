//! A frozen tree is written down.
//!
//! One file for each kind of thing. What can be read from outside is; the rest the processes answer themselves
//! (`tasks`), each process in one script and each thread in a short one. A process that has answered has its own
//! registers and signal mask again before the next is asked, so that a failure leaves nothing to be undone.

mod anonymous;
mod answer;
mod files;
mod flight;
mod found;
mod input;
mod ipc;
mod locks;
mod memory;
mod modes;
mod named_pipes;
mod notifications;
mod objects;
mod pages;
mod pidfds;
mod pipes;
mod posix_queues;
mod process;
mod sockets;
mod special;
mod task;
mod terminals;
mod undo;

use std::collections::BTreeMap;

use host::processes::features::features;

use self::objects::Objects;
pub use self::pages::Pages;
pub(crate) use self::pages::put_written;
use crate::error::Error;
use crate::freeze::Frozen;
use crate::proc::status::Status;
use crate::repair::Repaired;
use crate::slots::Slots;
use crate::state::{Bytes, State};
use crate::track::Tracker;
use crate::vdso;

/// The numbers that the processes have for themselves, by the host's.
#[derive(Debug)]
pub(crate) struct Names {
    own: BTreeMap<u32, u32>,
}

impl Names {
    fn read(frozen: &Frozen) -> Result<Self, Error> {
        let mut own = BTreeMap::new();
        for &pid in frozen.processes.keys().chain(&frozen.ended) {
            own.insert(pid, Status::read(pid, "status")?.own_number("NSpid")?);
        }
        Ok(Self { own })
    }

    /// What a process calls itself.
    pub(crate) fn own(&self, pid: u32) -> u32 {
        self.own.get(&pid).copied().unwrap_or(0)
    }

    /// What a process or thread of the tree calls itself; none for others.
    pub(crate) fn task(&self, frozen: &Frozen, number: u32) -> Result<Option<u32>, Error> {
        if let Some(own) = self.own.get(&number) {
            return Ok(Some(*own));
        }
        let has_it = |threads: &Vec<u32>| threads.contains(&number);
        match frozen.processes.iter().find(|(_, threads)| has_it(threads)) {
            Some((pid, _)) => {
                let status = Status::read(*pid, &format!("task/{number}/status"))?;
                status.own_number("NSpid").map(Some)
            }
            None => Ok(None),
        }
    }

    /// A number of a process of the tree as it is; 0 for those of others.
    pub(crate) fn known(&self, own: u32) -> u32 {
        if self.own.values().any(|found| *found == own) { own } else { 0 }
    }
}

impl Frozen {
    /// Write the processes down. They stay frozen. Pipes of `slots` may lead to others.
    ///
    /// # Errors
    ///
    /// Where something cannot be written down; the processes can go on all the same.
    pub fn dump(&mut self, pages: &mut impl Pages, slots: &Slots) -> Result<State, Error> {
        // Nothing is known of them.
        self.dump_rest(pages, slots, &mut Tracker::new(), false)
    }

    /// The same where memory has been copied while they ran, into the same pages: only what they have written since is
    /// copied now. If they `are_tracked` on, what they write after this is known as well.
    ///
    /// # Errors
    ///
    /// As [`dump`](Self::dump). Then the tracker is of no use any more.
    pub fn dump_rest(
        &mut self,
        pages: &mut impl Pages,
        slots: &Slots,
        tracker: &mut Tracker,
        are_tracked: bool,
    ) -> Result<State, Error> {
        // Only an image is for another kernel; whoever goes on here may be there.
        for (&pid, tasks) in self.processes.iter().filter(|it| !self.stopped.contains_key(it.0)) {
            vdso::leave(pid, tasks)?;
        }
        match are_tracked {
            true => tracker.adopt(self, pages)?,
            false => tracker.dismiss(self, pages)?,
        }
        self.repaired.end();
        let names = Names::read(self)?;
        let ipc = ipc::dump(self, pages)?;
        let mut objects = Objects::new(ipc::numbers(ipc.as_ref()));
        let queues = posix_queues::find(self)?;
        let mut collected = files::collect(self, &names, &mut objects, (slots, queues))?;
        let flight = flight::Flight::new(&names, slots, std::mem::take(&mut collected.known));
        let mut pipes = collected.pipes;
        let files = (&mut collected.descriptions, &mut collected.locks);
        let queues = flight.receive_all(&mut pipes, &mut objects, files)?;
        // Which of them was first is nobody's business.
        collected.locks.sort_unstable();
        let named = std::mem::take(&mut pipes.named);
        let named_pipes = named.finish(&mut collected.descriptions)?;
        let terminals = std::mem::take(&mut pipes.terminals).finish(self, &names, slots)?;
        let sockets = std::mem::take(&mut pipes.sockets).finish(queues, &mut self.repaired)?;
        let posix_queues = std::mem::take(&mut pipes.queues).finish();
        let pipes = pipes.finish()?;
        let mut processes = Vec::new();
        let mut vdso = None;
        for pid in self.parents_first(&names)? {
            if self.ended.contains(&pid) {
                processes.push(process::dump_ended(pid, &names)?);
                continue;
            }
            let descriptors = collected.descriptors.remove(&pid).unwrap_or_default();
            let mut process = process::dump(self, pid, &names, descriptors)?;
            process.undo = undo::dump(self, pid, ipc.as_ref())?;
            process.memory = memory::dump(pid, &process.memory, &mut vdso, &mut objects)?;
            let tracked = (tracker.of(pid), are_tracked);
            memory::dump_pages(pid, process.pid, &process.memory, pages, tracked)?;
            processes.push(process);
        }
        Ok(State {
            vdso: vdso.as_ref().map_or_else(Bytes::default, memory::digest),
            vdso_code: vdso.unwrap_or_default(),
            processor: features().into_iter().map(str::to_owned).collect(),
            processes,
            descriptions: collected.descriptions,
            pipes,
            named_pipes,
            locks: collected.locks,
            input_signals: collected.input_signals,
            terminals,
            ipc,
            posix_queues,
            objects: objects.dump(pages)?,
            sockets,
        })
    }

    /// Kill all of them.
    pub fn kill(mut self) {
        for &pid in self.processes.keys() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        // As their tracer we are told first that they have ended, and their parents only when we have heard it.
        let deadline = std::time::Instant::now() + crate::limits::FREEZE_PATIENCE;
        // The first thread's end is told when all the others' has been heard.
        let threads = std::mem::take(&mut self.processes).into_iter().flat_map(|(pid, threads)| {
            threads.into_iter().filter(move |thread| *thread != pid).chain([pid])
        });
        for thread in threads {
            let ended =
                |stop| matches!(stop, Ok(Some(host::processes::wait::Stop::Ended(_))) | Err(_));
            while std::time::Instant::now() < deadline
                && !ended(host::processes::wait::wait(thread, deadline))
            {}
        }
        // Who has them last closes them without a word.
        self.repaired = Repaired::default();
    }

    /// All processes, each after its parent.
    fn parents_first(&self, names: &Names) -> Result<Vec<u32>, Error> {
        let (mut order, mut next) = (self.roots.clone(), 0);
        while let Some(&pid) = order.get(next) {
            next += 1;
            if self.processes.contains_key(&pid) {
                let mut children = crate::proc::children(pid)?;
                children.sort_by_key(|child| names.own(*child));
                order.extend(children);
            }
        }
        Ok(order)
    }
}

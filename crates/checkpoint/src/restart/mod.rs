//! Processes are made again.
//!
//! The *seed* is a process that is alone in the PID namespace in which they are to live, its init as a rule. It is
//! stopped, lent an [area](inject), and made to open every file of the image and to bear the first processes with their
//! numbers. Each process is born with a copy of the area, stopped, and does the rest itself by scripts: it drops
//! all memory but the area and takes its own, bears its children and threads, joins sessions and groups, and takes
//! its descriptors, limits, actions of signals, timers, credentials. Nothing runs code of the image until all is there:
//! every task is stopped and traced, and dies with us.
//!
//! The area is at an address where neither the seed nor any process of the image has something.

mod anonymous;
mod birth;
mod files;
mod hole;
mod input;
mod ipc;
mod kept;
mod limits;
mod locks;
mod memory;
mod modes;
mod named_pipes;
mod notifications;
mod objects;
mod opened;
mod pidfds;
mod plan;
mod posix_queues;
mod process;
mod processor;
mod slots;
mod sockets;
mod task;
mod terminals;
mod timers;
mod tree;
mod vdso;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Instant;

use host::processes::trace;
use host::processes::wait::{Stop, wait};
use inject::{Area, Seat, find_gate};

use crate::error::Error;
use crate::image::Image;
use crate::limits::FREEZE_PATIENCE;
use crate::proc::status::Status;
use crate::slots::Given;

/// A process that is being made.
#[derive(Debug)]
pub(crate) struct Made {
    /// Its number in the image.
    pub pid: u32,
    /// Its leader.
    pub seat: Seat,
    pub area: Area,
    /// Its other threads, in the image's order.
    pub threads: Vec<Seat>,
}

/// Processes that are there again, and stopped. They are killed if this is dropped before [`go`](Self::go).
///
/// It belongs to the thread that made it.
#[derive(Debug, Default)]
pub struct Restarted {
    /// By the image's numbers.
    made: BTreeMap<u32, Made>,
    /// Tasks that exist, by the host's numbers.
    tasks: Vec<u32>,
    /// Whether they live on when this is dropped.
    is_done: bool,
    thread: PhantomData<*const ()>,
}

/// Make the processes of an image. `seed` is the host's number of a stopped or waiting process that is in the PID
/// namespace where none of their numbers is in use, that may choose numbers there (`CAP_CHECKPOINT_RESTORE`), and whose
/// directories and namespaces they get. It goes on unchanged. `given` takes the places of the image's slots.
///
/// # Errors
///
/// Where something cannot be made; then nothing is left.
pub fn restart(seed: u32, image: &Image, given: &Given<'_>) -> Result<Restarted, Error> {
    processor::check(image.state())?;
    let seed = Seed::take(seed, image)?;
    let mut restarted = Restarted::default();
    let result = tree::make(&seed, image, given, &mut restarted);
    // The seed goes on, whatever has come of it.
    let left = seed.leave();
    result?;
    left?;
    Ok(restarted)
}

impl Restarted {
    /// The numbers that the processes have for the host, by those that they have for themselves.
    #[must_use]
    pub fn numbers(&self) -> BTreeMap<u32, u32> {
        self.made.iter().map(|(pid, made)| (*pid, made.seat.task())).collect()
    }

    /// Let them go.
    ///
    /// # Errors
    ///
    /// Where one has been killed meanwhile.
    pub fn go(mut self) -> Result<(), Error> {
        self.is_done = true;
        for task in std::mem::take(&mut self.tasks) {
            trace::detach(task).map_err(Error::io("let a restarted task go"))?;
        }
        Ok(())
    }
}

impl Drop for Restarted {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        for &task in &self.tasks {
            if let Some(pid) = rustix::process::Pid::from_raw(task.cast_signed()) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let deadline = Instant::now() + FREEZE_PATIENCE;
        for &task in self.tasks.iter().rev() {
            while let Ok(Some(stop)) = wait(task, deadline) {
                if matches!(stop, Stop::Ended(_)) {
                    break;
                }
            }
        }
    }
}

/// The process that bears the first ones.
pub(crate) struct Seed {
    seat: Seat,
    area: Area,
    gate: u64,
}

impl Seed {
    fn take(task: u32, image: &Image) -> Result<Self, Error> {
        trace::seize(task).map_err(Error::io(format!("attach to process {task}")))?;
        let seed = trace::interrupt(task)
            .map_err(Error::io(format!("stop process {task}")))
            .and_then(|()| Self::prepare(task, image));
        if seed.is_err() {
            let _ = trace::detach(task);
        }
        seed
    }

    fn prepare(task: u32, image: &Image) -> Result<Self, Error> {
        let deadline = Instant::now() + FREEZE_PATIENCE;
        loop {
            match wait(task, deadline).map_err(Error::io("wait for a process"))? {
                Some(Stop::Told(_)) => break,
                Some(Stop::Signal(signal)) => trace::resume_to_stop(task, signal),
                Some(Stop::Ended(_)) => return Err(Error::Gone(task)),
                Some(_) => trace::resume_to_stop(task, 0),
                None => {
                    return Err(Error::Stuck { task, why: "it is to bear the others".to_owned() });
                }
            }
            .map_err(Error::io("continue a process"))?;
        }
        let status = Status::read(task, "status")?;
        let unavailable =
            status.mask("SigIgn")? | status.mask("SigPnd")? | status.mask("ShdPnd")?;
        let gate = find_gate(task)?;
        let hole = hole::find(task, image.state())?;
        let seat = Seat::take(task, unavailable)?;
        match seat.map(gate, hole) {
            Ok(area) => Ok(Self { seat, area, gate }),
            Err(error) => {
                seat.leave()?;
                Err(error.into())
            }
        }
    }

    fn leave(self) -> Result<(), Error> {
        let result = self.seat.unmap(self.gate, &self.area).and_then(|()| self.seat.leave());
        let _ = trace::detach(self.seat.task());
        Ok(result?)
    }
}

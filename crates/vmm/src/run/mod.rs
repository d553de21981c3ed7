//! All vCPUs of one machine at work: a thread for each; the caller's thread runs the first.
//!
//! Any vCPU can end the machine, and so can another thread; then all return. A vCPU whose thread fails or panics ends
//! the machine too, and [`Runner::run`] returns its error.

mod brief;
mod errands;
mod gate;
mod run_loop;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread;

use gates::Gates;

use machine::time::Clock;
use machine::{Board, Wake};

use crate::activity::Activity;
use crate::alarm::Alarm;
use crate::configuration::Reporter;
use crate::control::{Control, Guard};
use crate::devices::Polled;
use crate::devices::collector::Collector;
use crate::idle::{Idle, Occupancy};
use crate::outcome::{Error, Outcome};
use crate::processor::Processor;
use crate::stolen::Stolen;
use crate::waker::Waker;
use errands::Errands;
use gate::OwnGate;
use run_loop::RunLoop;

/// How the platform reaches the threads.
pub(crate) struct Wakers(pub(crate) Vec<Waker>);

impl Wake for Wakers {
    fn wake(&self, processor: usize) {
        if let Some(waker) = self.0.get(processor) {
            waker.wake();
        }
    }
}

/// The processors of a machine on their board.
pub(crate) struct Runner<P, B> {
    pub(crate) cpus: Vec<P>,
    pub(crate) activity: Vec<Activity>,
    pub(crate) board: B,
    /// What devices have left for these threads to look at.
    pub(crate) polled: Polled,
    pub(crate) reporter: Reporter,
    /// What says when the vCPUs may run, if somebody does.
    pub(crate) gates: Option<Gates>,
    clock: Arc<dyn Clock>,
    control: Control,
    occupancy: Arc<Occupancy>,
}

impl<P: Processor, B: Board> Runner<P, B> {
    /// Processors that have not started. `wakers` are those that the board has.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when there is no thread or timer for the alarms.
    pub(crate) fn new(
        cpus: Vec<P>,
        board: B,
        polled: Polled,
        clock: Arc<dyn Clock>,
        wakers: Vec<Waker>,
    ) -> Result<Self, Error> {
        let (control, occupancy) = (Control::new(wakers), Occupancy::new());
        let activity = vec![Activity::default(); cpus.len()];
        Ok(Self {
            cpus,
            activity,
            board,
            polled,
            reporter: Reporter::default(),
            gates: None,
            clock,
            control,
            occupancy,
        })
    }

    /// What makes [`Self::run`] return [`Outcome::Stopped`].
    pub(crate) fn control(&self) -> Control {
        self.control.clone()
    }

    /// Run until the machine ends or resets. Everything that the guest has sent is passed on then.
    ///
    /// # Errors
    ///
    /// [`Error::Processor`] when the host fails, [`Error::Panicked`] when we do.
    pub(crate) fn run(&mut self) -> Result<Outcome, Error> {
        let (board, control) = (&self.board, &self.control);
        let Polled { file_servers, disks, collectors } = &self.polled;
        let clock = &*self.clock;
        let (occupancy, reporter, gates) = (&self.occupancy, &self.reporter, self.gates.as_ref());
        let run = |processor: usize, cpu: &mut P, activity: &mut Activity| {
            let _guard = Guard { control, processor };
            let waker = control.waker(processor);
            let requests = &board.requests();
            occupancy.enter();
            let stolen = Stolen::of_this_thread(cpu.computed_elsewhere());
            let mut run_loop = RunLoop {
                cpu,
                processor,
                reporter,
                vcpu: board.vcpu(processor),
                requests,
                alarm: Alarm::default(),
                control,
                waker,
                clock,
                collectors,
                file_servers,
                errands: Errands::new(disks),
                idle: Idle::new(Arc::clone(occupancy)),
                stolen,
                gate: OwnGate::new(gates, processor),
                activity,
                flush_at: None,
                seen_deadline: None,
            };
            let result = run_loop.run();
            run_loop.errands.leave();
            run_loop.cpu.leave_thread();
            occupancy.leave();
            if let Some(result) = result.transpose() {
                control.end(result);
            }
        };
        let run = &run;
        thread::scope(|scope| {
            let _served = gate::serve(scope, gates, control);
            let parts = self.cpus.iter_mut().zip(&mut self.activity);
            let mut all = parts.enumerate();
            let first = all.next();
            let mut threads = Vec::new();
            for (processor, (cpu, activity)) in all {
                let thread = thread::Builder::new().name(format!("processor {processor}"));
                let started = thread.spawn_scoped(scope, move || {
                    run(processor, cpu, activity);
                });
                match started {
                    Ok(thread) => threads.push(thread),
                    Err(error) => control.end(Err(error.into())),
                }
            }
            if let Some((processor, (cpu, activity))) = first {
                run(processor, cpu, activity);
            }
            for thread in threads {
                // What it panicked with has been said, and its guard has ended the machine.
                let _ = thread.join();
            }
        });
        self.flush();
        self.control.take_result()
    }

    /// Pass on what the guest has sent over its serial lines.
    pub(crate) fn flush(&mut self) {
        self.polled.collectors.iter().for_each(Collector::flush);
    }
}

//! Stopping for a debugger: what the run loop asks of [`stops`](crate::stops), which has the rules.

use std::sync::Arc;

use crate::exit::Exit;
use crate::memory::Linear;
use crate::stops::{Offsets, Step, Stopped, Stops};
use crate::vcpu::Vcpu;

impl Vcpu {
    /// Stop at these from now on, and at nothing else. No vCPU of the machine runs, and each is told before one does.
    pub fn set_stops(&mut self, stops: &Arc<Stops>) {
        let debugging = &mut self.arch.debugging;
        let before = std::mem::replace(&mut debugging.stops, Arc::clone(stops));
        debugging.suspect = Offsets::of(&stops.breakpoints);
        debugging.note_active();
        let is_new = |at: &&u64| !before.has_breakpoint(**at);
        let added: Vec<u64> = stops.breakpoints.iter().filter(is_new).copied().collect();
        if added.is_empty() {
            return;
        }
        self.arch.group.translator().cut(&Offsets::of(&added), &self.arch.group.peers);
        if let Some(spaces) = &mut self.arch.spaces {
            added.iter().for_each(|&at| spaces.drop_page(Linear(at)));
        }
    }

    /// Stop behind the next instruction, or no longer. It is wanted anew after each stop.
    pub fn set_step(&mut self, wanted: bool) {
        self.arch.debugging.step = if wanted { Step::Wanted } else { Step::None };
        self.arch.debugging.note_active();
    }

    /// Why [`Self::run`] has come back with [`Exit::Debug`]; once for each time.
    pub fn take_stop(&mut self) -> Option<Stopped> {
        self.arch.debugging.stopped.take()
    }

    /// Whether a debugger is to be told of the instruction that has just completed.
    #[inline]
    pub(crate) fn has_stopped(&mut self) -> bool {
        self.arch.debugging.is_active && self.stops_behind()
    }

    #[cold]
    fn stops_behind(&mut self) -> bool {
        if self.arch.replay.has_question() {
            return false;
        }
        let debugging = &mut self.arch.debugging;
        let is_done = debugging.step == Step::Done;
        let stopped = match debugging.hit.take() {
            Some((kind, at)) => Stopped::Watchpoint(kind, at),
            None if is_done => Stopped::Step,
            None => return false,
        };
        debugging.stopped = Some(stopped);
        if is_done {
            self.set_step(false);
        }
        true
    }

    /// Whether the next instruction has a breakpoint. An instruction that waits for an answer has begun already.
    #[inline]
    pub(crate) fn stops_ahead(&mut self) -> bool {
        if !self.breaks_here() || self.arch.replay.has_question() {
            return false;
        }
        self.arch.debugging.stopped = Some(Stopped::Breakpoint);
        true
    }

    /// Whether there is a breakpoint at RIP.
    #[inline]
    pub(crate) fn breaks_here(&self) -> bool {
        let rip = self.arch.context.regs.rip;
        self.arch.debugging.is_active
            && self.arch.code_linear(rip).is_ok_and(|at| self.arch.debugging.breaks_at(at.0))
    }

    /// Execute the one instruction of a step.
    #[cold]
    pub(crate) fn step_for_debugger(&mut self) -> Option<Exit> {
        let exit = self.interpret();
        if !self.arch.replay.has_question() {
            self.arch.debugging.step = Step::Done;
        }
        // The halt begins when the guest goes on.
        exit.filter(|exit| *exit != Exit::Halt)
    }

    /// What is pending while a step is wanted: it waits, unless the processor has halted.
    #[cold]
    pub(crate) fn take_events_of_step(&mut self) -> Option<Exit> {
        if !self.pending.halted {
            return None;
        }
        let exit = self.take_events();
        if !self.pending.halted {
            self.arch.debugging.step = Step::Done;
        }
        exit
    }
}

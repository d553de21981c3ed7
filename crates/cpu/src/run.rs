//! The run loop: what happens between two exits.
//!
//! Every pass of the loop starts at an instruction boundary with precise state. Events come in the
//! order of SDM 3A table 6-2: what the last instruction left to do, then NMI, then interrupts, then
//! the next instruction, translated where the mode allows it and interpreted where not.

use crate::context::Reason;
use crate::exception::{Exception, Trap, Vector};
use crate::exit::Exit;
use crate::history::Happened;
use crate::state::{CodeSize, rflags};
use crate::vcpu::{Error, Vcpu};

impl Vcpu {
    /// Run the guest until something happens that the processor cannot do itself.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when the thread cannot be prepared for running guest code.
    pub fn run(&mut self) -> Result<Exit, Error> {
        self.bind_thread()?;
        loop {
            if let Some(exit) = self.replay.take_queued() {
                return Ok(exit);
            }
            if self.pending.shut_down {
                return Ok(Exit::Shutdown);
            }
            if self.kick.take() {
                return Ok(Exit::Kicked);
            }
            if let Some(exit) = self.take_events() {
                return Ok(exit);
            }
            if let Some(exit) = self.advance() {
                return Ok(exit);
            }
        }
    }

    fn bind_thread(&mut self) -> Result<(), Error> {
        if self.registration.as_ref().is_some_and(|known| known.is_this_thread()) {
            return Ok(());
        }
        self.registration = None;
        let registration = crate::native::signals::prepare_thread(&mut self.context, &self.kick)?;
        self.registration = Some(registration);
        Ok(())
    }

    /// Deliver what is pending. An exit that is in the middle of an instruction comes first.
    fn take_events(&mut self) -> Option<Exit> {
        if self.replay.has_question() {
            return None;
        }
        if self.pending.nmi && self.context.regs.nmi_blocked == 0 && !self.in_shadow() {
            self.pending.nmi = false;
            self.pending.halted = false;
            return self.delivered(|cpu| cpu.deliver_nmi());
        }
        let open = self.context.regs.interrupt_flag != 0 && !self.in_shadow();
        if open && let Some(vector) = self.pending.interrupt.take() {
            self.pending.halted = false;
            self.statistics.interrupts += 1;
            let rip = self.context.regs.rip;
            self.history.note(Happened::Interrupt { rip, vector });
            return self.delivered(|cpu| cpu.deliver_interrupt(vector));
        }
        if open && self.context.window_wanted != 0 {
            self.context.window_wanted = 0;
            return Some(Exit::InterruptWindow);
        }
        self.pending.halted.then_some(Exit::Halt)
    }

    fn in_shadow(&self) -> bool {
        self.context.regs.interrupt_shadow != 0
    }

    fn delivered(&mut self, act: impl FnOnce(&mut Self) -> Result<(), Trap>) -> Option<Exit> {
        self.replay.begin();
        match act(self) {
            Ok(()) => None,
            Err(trap) => self.take_trap(trap),
        }
    }

    /// Execute one block, one chain of blocks, or one instruction.
    fn advance(&mut self) -> Option<Exit> {
        if self.may_translate() { self.run_translated() } else { self.interpret() }
    }

    /// Whether translated code may run now: 64-bit mode, nothing that needs a look after every
    /// instruction.
    fn may_translate(&self) -> bool {
        let regs = &self.context.regs;
        !self.config.interpret_only
            && regs.code_size() == CodeSize::Bits64
            && regs.rflags() & (rflags::TF | rflags::RF | rflags::DF) == 0
            && regs.interrupt_shadow == 0
            && regs.dr[7] & 0xff == 0
            && !self.replay.has_question()
            && !self.alignment_checks()
    }

    fn alignment_checks(&self) -> bool {
        let regs = &self.context.regs;
        regs.cpl == 3 && regs.alignment_flag != 0 && regs.cr0 & crate::state::cr0::AM != 0
    }

    /// One instruction.
    pub(crate) fn interpret(&mut self) -> Option<Exit> {
        self.statistics.interpreted += 1;
        self.replay.begin();
        match self.step() {
            Ok(()) => {
                self.replay.end();
                None
            }
            Err(trap) => self.take_trap(trap),
        }
    }

    /// The instruction that a block has left to the interpreter. It need not be fetched again: a
    /// block whose bytes have changed is gone.
    fn interpret_left(&mut self) -> Option<Exit> {
        let Some(instruction) = self.translator.left_instruction(self.context.detail) else {
            return self.interpret();
        };
        self.statistics.interpreted += 1;
        self.replay.begin();
        match self.step_decoded(&instruction) {
            Ok(()) => {
                self.replay.end();
                None
            }
            Err(trap) => self.take_trap(trap),
        }
    }

    /// Deal with an instruction that did not complete.
    pub(crate) fn take_trap(&mut self, trap: Trap) -> Option<Exit> {
        match trap {
            Trap::Exit(Exit::Halt) => {
                self.replay.end();
                self.pending.halted = true;
                Some(Exit::Halt)
            }
            Trap::Exit(Exit::Shutdown) => {
                self.pending.shut_down = true;
                Some(Exit::Shutdown)
            }
            Trap::Exit(exit) => {
                self.replay.abandon();
                Some(exit)
            }
            Trap::Exception(exception) => {
                self.replay.end();
                self.replay.abandon();
                self.raise(exception)
            }
        }
    }

    /// Deliver an exception; the exit, if that shuts the processor down.
    pub(crate) fn raise(&mut self, exception: Exception) -> Option<Exit> {
        self.statistics.exceptions += 1;
        self.history.note(Happened::Exception {
            rip: self.context.regs.rip,
            vector: exception.vector as u8,
            error: exception.error.unwrap_or(0),
            payload: exception.payload,
        });
        if tracing::enabled!(tracing::Level::TRACE) {
            let regs = &self.context.regs;
            tracing::trace!(?exception, rip = format_args!("{:#x}", regs.rip), cpl = regs.cpl);
        }
        match self.deliver_exception(exception) {
            Ok(()) => None,
            Err(Trap::Exit(Exit::Shutdown)) => {
                self.pending.shut_down = true;
                Some(Exit::Shutdown)
            }
            Err(Trap::Exit(exit)) => Some(exit),
            Err(Trap::Exception(_)) => {
                self.pending.shut_down = true;
                Some(Exit::Shutdown)
            }
        }
    }

    /// Run translated code from RIP until it comes back for a reason that ends this pass.
    fn run_translated(&mut self) -> Option<Exit> {
        let mut target = match self.find_block() {
            Ok(target) => target?,
            Err(trap) => return self.take_trap(trap),
        };
        loop {
            self.select_sets();
            self.statistics.entries += 1;
            // SAFETY: `target` is a block's entry, or a restart point in one.
            let reason = unsafe { crate::native::enter(&mut self.context, target) };
            if self.translator.stopper_has_closed() {
                self.translator.reopen_gates();
            }
            self.arrive(reason);
            let left = Happened::Left { rip: self.context.regs.rip, why: reason.name() };
            self.history.note(left);
            match reason {
                Reason::Miss => match self.serve_miss() {
                    Resume::At(again) => target = again,
                    Resume::Dispatch(exit) => return exit,
                },
                Reason::Unlinked | Reason::Lookup => {
                    if self.is_kicked() {
                        return None;
                    }
                    match self.follow(reason) {
                        Some(next) => target = next,
                        None => return None,
                    }
                }
                Reason::Interpret => return self.interpret_left(),
                Reason::Fault => return self.serve_fault(),
                Reason::Kicked | Reason::Done => return None,
            }
        }
    }

    /// Put RIP right for the reasons that leave it to a number.
    fn arrive(&mut self, reason: Reason) {
        let detail = self.context.detail;
        match reason {
            Reason::Miss | Reason::Interpret => {
                self.context.regs.rip = self.translator.mark_address(detail);
            }
            Reason::Unlinked => self.context.regs.rip = self.translator.gate_target(detail),
            _ => {}
        }
    }

    /// Link a jump, or enter its target into the jump cache; where to go on.
    fn follow(&mut self, reason: Reason) -> Option<u64> {
        if !self.may_translate() {
            return None;
        }
        let gate = self.context.detail;
        let generation = self.translator.generation;
        let target = self.find_block().ok()??;
        let linked = reason == Reason::Unlinked
            && generation == self.translator.generation
            && self.translator.link(gate, target);
        if linked {
            self.statistics.links += 1;
        } else {
            self.statistics.lookups += 1;
        }
        Some(target)
    }

    /// A signal arrived in translated code: the host CPU refused a guest instruction.
    fn serve_fault(&mut self) -> Option<Exit> {
        let fault = self.context.fault;
        if !self.restore_at(fault.rip) {
            tracing::error!(?fault, "host fault outside any guest instruction");
            self.pending.shut_down = true;
            return Some(Exit::Shutdown);
        }
        let exception = match fault.trap {
            0 => Exception::plain(Vector::DivideError),
            6 => Exception::invalid_opcode(),
            16 => Exception::plain(Vector::FloatingPoint),
            19 => Exception::plain(Vector::SimdFloatingPoint),
            // Anything else depends on the operand: the interpreter knows how to say it.
            _ => return self.interpret(),
        };
        self.raise(exception)
    }
}

/// How to go on after a miss.
pub(crate) enum Resume {
    /// In translated code, at this host address.
    At(u64),
    /// In the run loop.
    Dispatch(Option<Exit>),
}

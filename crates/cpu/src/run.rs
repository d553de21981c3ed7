//! The run loop: what happens between two exits.
//!
//! Every pass of the loop starts at an instruction boundary with precise state. Events come in the
//! order of SDM 3A table 6-2: what the last instruction has left pending, then NMI, then interrupts, then
//! the next instruction, translated where the mode allows it and interpreted where it does not.

use iced_x86::FlowControl;

use crate::config::Error;
use crate::context::{NOT_COMPUTED, Reason};
use crate::exception::{Exception, Trap, Vector};
use crate::exit::Exit;
use crate::history::Happened;
use crate::memory::{Access, Linear};
use crate::state::rflags;
use crate::time::time_stamp;
use crate::translate::code_32::is_flat;
use crate::translate::host_code::HostCode;
use crate::vcpu::Vcpu;

impl Vcpu {
    /// Run the guest until it needs something that is not the vCPU's own.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when the thread cannot be prepared for running guest code.
    pub fn run(&mut self) -> Result<Exit, Error> {
        self.bind_thread()?;
        self.become_busy();
        crate::native::note_host(&mut self.arch.context);
        self.left_at = time_stamp();
        let exit = self.run_busy();
        self.note(Happened::exit(self.arch.context.regs.rip, &exit));
        crate::native::restore_host(&self.arch.context);
        self.arch.kick.set_busy(false);
        Ok(exit)
    }

    fn run_busy(&mut self) -> Exit {
        loop {
            if let Some(exit) = self.arch.replay.take_queued() {
                return exit;
            }
            if self.has_stopped() {
                return Exit::Debug;
            }
            if self.pending.shut_down {
                return Exit::Shutdown;
            }
            if self.arch.kick.take() {
                return Exit::Kicked;
            }
            self.checkpoint();
            let exit = match self.arch.debugging.is_stepping() {
                false => self.take_events(),
                true => self.take_events_of_step(),
            };
            if let Some(exit) = exit {
                return exit;
            }
            if let Some(exit) = self.advance() {
                return exit;
            }
        }
    }

    pub(crate) fn bind_thread(&mut self) -> Result<(), Error> {
        if self.registration.as_ref().is_some_and(|known| known.is_this_thread()) {
            return Ok(());
        }
        self.registration = None;
        self.forget_look_timer();
        let registration =
            crate::native::signals::prepare_thread(&mut self.arch.context, &self.arch.kick)?;
        self.registration = Some(registration);
        Ok(())
    }

    /// Deliver what is pending. An exit that is in the middle of an instruction comes first.
    pub(crate) fn take_events(&mut self) -> Option<Exit> {
        if self.arch.replay.has_question() {
            return None;
        }
        if self.pending.nmi && self.arch.context.regs.nmi_blocked == 0 && !self.in_shadow() {
            self.pending.nmi = false;
            self.pending.halted = false;
            return self.delivered(|cpu| cpu.arch.deliver_nmi());
        }
        if self.arch.has_event() && !self.in_shadow() {
            self.pending.halted = false;
            self.consider_direct();
            self.arch.statistics.interrupts += 1;
            return self.delivered(|cpu| cpu.arch.deliver_upcall());
        }
        let open = self.arch.context.regs.interrupt_flag != 0 && !self.in_shadow();
        if open && let Some(vector) = self.pending.interrupt.take() {
            self.pending.halted = false;
            self.consider_direct();
            self.arch.statistics.interrupts += 1;
            let rip = self.arch.context.regs.rip;
            self.note(Happened::Interrupt { rip, vector });
            return self.delivered(|cpu| cpu.arch.deliver_interrupt(vector));
        }
        if open && self.arch.context.window_wanted != 0 {
            self.arch.context.window_wanted = 0;
            return Some(Exit::InterruptWindow);
        }
        self.pending.halted.then_some(Exit::Halt)
    }

    fn in_shadow(&self) -> bool {
        self.arch.context.regs.interrupt_shadow != 0
    }

    fn delivered(&mut self, act: impl FnOnce(&mut Self) -> Result<(), Trap>) -> Option<Exit> {
        self.arch.replay.begin();
        match act(self) {
            Ok(()) => None,
            Err(trap) => self.take_trap(trap),
        }
    }

    /// Execute one block, one chain of blocks, or one instruction.
    fn advance(&mut self) -> Option<Exit> {
        self.arch.note_users();
        self.arch.heed_mirror();
        if self.arch.debugging.is_stepping() {
            return self.step_for_debugger();
        }
        if self.stops_ahead() {
            return Some(Exit::Debug);
        }
        if self.wants_direct() {
            return self.run_direct();
        }
        if self.may_translate() { self.run_translated() } else { self.interpret() }
    }

    /// Whether translated code may run now: 64-bit code, or 32-bit code in flat segments, and nothing that needs a
    /// look after every instruction.
    pub(crate) fn may_translate(&self) -> bool {
        let regs = &self.arch.context.regs;
        !self.arch.config.interpret_only
            && (regs.mode().is_64_bit() || is_flat(regs))
            && regs.rflags() & (rflags::TF | rflags::DF) == 0
            && regs.interrupt_shadow == 0
            && regs.dr[7] & 0xff == 0
            && !self.arch.debugging.watches()
            && !self.arch.replay.has_question()
            && !self.alignment_checks()
    }

    fn alignment_checks(&self) -> bool {
        let regs = &self.arch.context.regs;
        regs.mode().is_user() && regs.alignment_flag != 0 && regs.cr0 & crate::state::cr0::AM != 0
    }

    /// One instruction.
    pub(crate) fn interpret(&mut self) -> Option<Exit> {
        self.note_interpreted();
        self.arch.statistics.interpreted += u64::from(!self.arch.replay.has_question());
        self.arch.replay.begin();
        match self.arch.step() {
            Ok(()) => {
                self.arch.replay.end();
                None
            }
            Err(trap) => self.take_trap(trap),
        }
    }

    /// The instruction that a block has left to the interpreter. It need not be fetched again: a
    /// block whose bytes have changed is gone.
    fn interpret_left(&mut self) -> Option<Exit> {
        let (left, interpreted) = {
            let (mark, page) = (self.arch.context.detail, Linear(self.arch.context.code_page));
            let translator = self.arch.group.translator();
            (translator.left_instruction(mark, page), translator.interpreted_end(mark, page))
        };
        if let Some(end) = interpreted {
            return self.interpret_until(end.0);
        }
        let Some(instruction) = left else { return self.interpret() };
        self.note_interpreted();
        self.arch.statistics.interpreted += 1;
        self.arch.replay.begin();
        match self.arch.step_decoded(&instruction) {
            Ok(()) => {
                self.arch.replay.end();
                None
            }
            Err(trap) => self.take_trap(trap),
        }
    }

    /// Interpret a block as a whole: up to its end, or to the first instruction that does not fall
    /// through. Interrupts wait until then, as they would if it were translated, unless another thread
    /// kicks the vCPU, or an instruction enables them.
    fn interpret_until(&mut self, end: u64) -> Option<Exit> {
        /// Repetitions of a string instruction are single steps.
        const MAX_STEPS: usize = 4096;
        for _ in 0..MAX_STEPS {
            let (before, open) =
                (self.arch.context.regs.rip, self.arch.context.regs.interrupt_flag);
            let exit = self.interpret();
            let after = self.arch.context.regs.rip;
            // Linear code wraps at the end of the address space.
            let left = end.wrapping_sub(after);
            let straight = left != 0 && left <= end.wrapping_sub(before);
            let waits = self.arch.replay.has_queued()
                || self.arch.is_kicked()
                || self.arch.context.regs.interrupt_flag != open;
            if exit.is_some() || !straight || waits || !self.may_translate() {
                return exit;
            }
        }
        None
    }

    /// Handle an instruction that did not complete.
    pub(crate) fn take_trap(&mut self, trap: Trap) -> Option<Exit> {
        match trap {
            Trap::Exit(Exit::Halt) => {
                self.arch.replay.end();
                self.forget_look();
                self.pending.halted = true;
                Some(Exit::Halt)
            }
            Trap::Exit(Exit::Shutdown) => {
                self.pending.shut_down = true;
                Some(Exit::Shutdown)
            }
            Trap::Exit(exit) => {
                self.arch.replay.abandon();
                Some(exit)
            }
            Trap::Exception(exception) => {
                self.arch.replay.end();
                self.arch.replay.abandon();
                self.raise(exception)
            }
        }
    }

    /// Deliver an exception; the exit, if that shuts the vCPU down.
    pub(crate) fn raise(&mut self, exception: Exception) -> Option<Exit> {
        self.arch.statistics.exceptions += 1;
        self.note(Happened::Exception {
            rip: self.arch.context.regs.rip,
            vector: exception.vector as u8,
            error: exception.error.unwrap_or(0),
            payload: exception.payload,
        });
        if tracing::enabled!(tracing::Level::TRACE) {
            let regs = &self.arch.context.regs;
            tracing::trace!(?exception, rip = format_args!("{:#x}", regs.rip), cpl = regs.cpl);
        }
        match self.arch.deliver_exception(exception) {
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
        let mut target = match self.find_block(None) {
            Ok(target) => target?,
            Err(trap) => return self.take_trap(trap),
        };
        self.note_block();
        let mut vectors = false;
        loop {
            self.heed_switch_of_spaces();
            self.note_help();
            self.arch.select_tlbs();
            self.heed_dropped_jumps();
            self.arch.context.code_page =
                crate::memory::Linear(self.arch.context.regs.rip).page().0;
            self.arch.note_return_obstacles();
            self.arch.statistics.entries += 1;
            let start = self.arch.context.regs.rip;
            let resumes = self.arch.context.regs.take_resume_flag();
            self.arch.group.code_changes.catch_up(&mut self.seen_changes);
            // SAFETY: `target` is a block's entry, or a restart point in one, whose needs are known.
            let reason = unsafe { crate::native::enter(&mut self.arch.context, target, vectors) };
            self.left_at = time_stamp();
            vectors = false;
            self.restore_unchained();
            self.arrive(reason);
            let went_on = matches!(reason, Reason::Unlinked | Reason::Lookup);
            let stayed = resumes && !went_on && self.arch.context.regs.rip == start;
            if std::mem::take(&mut self.arch.context.resume_pending) != 0 || stayed {
                self.arch.context.regs.put_resume_flag_back();
            }
            let left = Happened::Left { rip: self.arch.context.regs.rip, why: reason.name() };
            self.note(left);
            match reason {
                Reason::Miss => match self.serve_miss() {
                    Resume::At(again) => (target, vectors) = again,
                    Resume::Dispatch(exit) => return exit,
                },
                Reason::Lookup if self.is_refused() => return self.refuse_jump(),
                Reason::Unlinked | Reason::Lookup => {
                    if self.arch.is_kicked() {
                        return None;
                    }
                    match self.follow(reason) {
                        Some(next) => {
                            target = next;
                            self.note_block();
                        }
                        None => return None,
                    }
                }
                Reason::Interpret => return self.interpret_left(),
                Reason::Call if self.arch.carry_out_own_call() => match self.go_on_after_call() {
                    Resume::At((next, _)) => target = next,
                    Resume::Dispatch(exit) => return exit,
                },
                Reason::Call => return Some(self.arch.called()),
                Reason::Assist => match self.assist() {
                    Resume::At(again) => (target, vectors) = again,
                    Resume::Dispatch(exit) => return exit,
                },
                Reason::Fault => match self.serve_fault() {
                    Resume::At(again) => (target, vectors) = again,
                    Resume::Dispatch(exit) => return exit,
                },
                Reason::Kicked | Reason::Done => return None,
            }
        }
    }

    /// Go on behind a hypercall that the vCPU has carried out itself. If an event waits, the run loop delivers it
    /// first, as behind any hypercall.
    fn go_on_after_call(&mut self) -> Resume {
        let waits = self.arch.is_kicked() || self.arch.has_event();
        if waits || !self.may_translate() || self.breaks_here() {
            return Resume::Dispatch(None);
        }
        match self.find_block(None) {
            Ok(Some(next)) => {
                self.note_block();
                Resume::At((next, false))
            }
            Ok(None) => Resume::Dispatch(None),
            Err(trap) => Resume::Dispatch(self.take_trap(trap)),
        }
    }

    /// Translated code is about to run: if it is the user's, what has happened since it was left
    /// was help.
    fn note_help(&mut self) {
        if self.arch.context.regs.mode().is_user() {
            self.helped_cycles += time_stamp().wrapping_sub(self.left_at);
            self.expect_look();
        }
    }

    /// Put RIP right for the reasons that leave it to a number.
    fn arrive(&mut self, reason: Reason) {
        let (detail, page) = (self.arch.context.detail, Linear(self.arch.context.code_page));
        match reason {
            Reason::Miss | Reason::Interpret | Reason::Assist => {
                self.arch.context.regs.rip =
                    self.arch.group.translator().mark_address(detail, page).0;
            }
            Reason::Unlinked => {
                self.arch.context.regs.rip =
                    self.arch.group.translator().slot_target(detail, page).0;
            }
            // It is a jump address (memory/tlb.rs).
            Reason::Lookup => {
                let regs = &mut self.arch.context.regs;
                regs.rip = regs.mode().linear(Linear(regs.rip)).0;
            }
            _ => {}
        }
    }

    /// Whether the jump cache was asked for an address that is not canonical, by a jump.
    fn is_refused(&self) -> bool {
        self.arch.context.detail != NOT_COMPUTED
            && !Linear(self.arch.context.regs.rip).is_canonical()
    }

    /// An indirect jump, call or return leads to an address that is not canonical: it has not
    /// happened, and faults (SDM 2A "CALL", "JMP", 2B "RET"). If another processor has changed it
    /// in the meantime, it has happened, and its target faults.
    fn refuse_jump(&mut self) -> Option<Exit> {
        let (mark, page) = (self.arch.context.detail, Linear(self.arch.context.code_page));
        let jump = self.arch.group.translator().mark_address(mark, page).0;
        let target = std::mem::replace(&mut self.arch.context.regs.rip, jump);
        let undone = self.arch.fetch_instruction().ok().and_then(|instruction| {
            let released = match instruction.op_count() {
                0 => 0,
                _ => u64::from(instruction.immediate16()),
            };
            match instruction.flow_control() {
                FlowControl::Return => Some((8 + released).wrapping_neg()),
                FlowControl::IndirectCall => Some(8),
                FlowControl::IndirectBranch => Some(0),
                _ => None,
            }
        });
        let Some(undone) = undone else {
            self.arch.context.regs.rip = target;
            return self.interpret();
        };
        let rsp = &mut self.arch.context.regs.gpr[4];
        *rsp = rsp.wrapping_add(undone);
        self.interpret()
    }

    /// Link a jump, or enter its target into the jump cache; where to go on.
    fn follow(&mut self, reason: Reason) -> Option<HostCode> {
        if !self.may_translate() || self.wants_direct() || self.breaks_here() {
            return None;
        }
        let slot = self.arch.context.detail;
        let generation = self.generation;
        let from = (reason == Reason::Unlinked).then_some(slot);
        let target = self.find_block(from).ok()??;
        let linked = reason == Reason::Unlinked
            && !self.is_traced()
            && !self.arch.debugging.is_suspect(self.arch.context.regs.rip)
            && generation == self.generation
            && self.link(slot, target);
        if linked {
            self.arch.statistics.links += 1;
        } else {
            self.arch.statistics.lookups += 1;
        }
        Some(target)
    }

    fn link(&self, slot: u32, target: HostCode) -> bool {
        let page = self.arch.linkable_page(slot);
        self.arch.group.translator().link(slot, target, page)
    }

    /// A signal arrived in translated code: the host CPU refused a guest instruction, or the mirror
    /// lacks what the guest kernel wants.
    fn serve_fault(&mut self) -> Resume {
        let fault = self.arch.context.fault;
        if !self.restore_at(HostCode(fault.rip)) {
            tracing::error!(?fault, "host fault outside any guest instruction");
            self.pending.shut_down = true;
            return Resume::Dispatch(Some(Exit::Shutdown));
        }
        let repeats = self.arch.leave_piece(HostCode(fault.rip));
        let exception = match fault.trap {
            0 => Exception::plain(Vector::DivideError),
            6 => Exception::invalid_opcode(),
            16 => Exception::plain(Vector::FloatingPoint),
            19 => Exception::plain(Vector::SimdFloatingPoint),
            13 | 14 if !self.arch.context.regs.mode().is_user() => {
                return self.serve_mirror_fault(fault, repeats);
            }
            // Anything else depends on the operand: the interpreter knows how to say it.
            _ => return Resume::Dispatch(self.interpret()),
        };
        Resume::Dispatch(self.raise(exception))
    }

    /// A page fault in the mirror; or a general-protection fault, which is what an address beyond
    /// the mirror becomes (a user's, as a rule). `repeats` says that it was a string instruction's,
    /// which tells its user's memory from the kernel's by itself.
    fn serve_mirror_fault(&mut self, fault: crate::context::Fault, repeats: bool) -> Resume {
        /// Error code of a page fault: the access was a write (SDM 3A 4.7).
        const WRITE: u64 = 1 << 1;
        self.arch.statistics.mirror_faults += 1;
        let access = if fault.error & WRITE != 0 { Access::Write } else { Access::Read };
        let group = std::sync::Arc::clone(&self.arch.group);
        let found = group.translator().instruction_at(HostCode(fault.rip));
        let Some((physical, mark, restart)) = found else {
            return Resume::Dispatch(self.interpret());
        };
        if fault.trap == 14 && self.arch.fill_mirror(fault.address, access) {
            return self.try_again(restart);
        }
        // What a paravirtual kernel clears is its next page table, time and again (memory/runs.rs).
        let repeats = repeats && self.arch.paravirtual.is_none();
        if group.mirror.is_some() && !repeats {
            group.translator().except(physical, &group.peers);
            self.arch.statistics.mirror_exceptions += 1;
        }
        let instruction = repeats.then(|| self.instruction_in_page(physical)).flatten();
        let helped = instruction.and_then(|instruction| self.help_missed(&instruction, mark));
        helped.unwrap_or_else(|| Resume::Dispatch(self.interpret()))
    }
}

/// How to go on after a miss.
pub(crate) enum Resume {
    /// In translated code, at this host address, with x87 and vector state loaded or not.
    At((HostCode, bool)),
    /// In the run loop.
    Dispatch(Option<Exit>),
}

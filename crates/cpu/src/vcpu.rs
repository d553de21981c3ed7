//! One vCPU: its state, its memory, and the calls that a machine makes on it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::architectural::Architectural;
use crate::config::{Config, Error, RamRegion};
use crate::context::XSAVE_BYTES;
use crate::kick::Kick;
use crate::native::signals::Registration;
use crate::replay::Replay;
use crate::state::Registers;
use crate::statistics::{Statistics, named};
use crate::translate::Mode;
use crate::vcpu_group::VcpuGroup;

/// A virtual processor: its architectural state, and the engine that executes the guest's code on it.
pub struct Vcpu {
    pub(crate) arch: Architectural,
    /// The generation of the code cache that the jump caches belong to.
    pub(crate) generation: u64,
    /// The last request to flush them that was served.
    pub(crate) dropped_jumps: u64,
    /// The number of changes of code that the vCPU has seen (translate/views.rs).
    pub(crate) seen_changes: u64,
    /// Mode bits under which the jump caches were filled.
    pub(crate) jump_mode: Mode,
    pub(crate) registration: Option<Registration>,
    pub(crate) pending: Pending,
    pub(crate) history: crate::history::History,
    /// The tracer, if there is one (inspect.rs).
    pub(crate) tracer: Option<Arc<dyn crate::inspect::Tracer>>,
    /// Cycles of the time-stamp counter for which translated user code waited to be helped, and when
    /// translated code was left last.
    pub(crate) helped_cycles: u64,
    pub(crate) left_at: u64,
    /// Direct execution of user code, if there is any.
    pub(crate) user: Option<Box<crate::user::code::UserCode>>,
}

// SAFETY: as for [`Architectural`]; what is registered with the host for a thread is replaced when another thread
// runs the processor, and no other follows its pointers.
unsafe impl Send for Vcpu {}

/// Events that are pending for the vCPU.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) interrupt: Option<u8>,
    pub(crate) nmi: bool,
    /// `hlt` was executed and nothing has woken the processor since.
    pub(crate) halted: bool,
    /// The processor has shut down (a triple fault): it executes nothing until RESET or INIT.
    pub(crate) shut_down: bool,
}

impl Vcpu {
    /// A vCPU in a group of its own, in the state after RESET.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot run translated code.
    ///
    /// # Safety
    ///
    /// As for [`VcpuGroup::new`].
    pub unsafe fn new(config: Config, ram: Vec<RamRegion>) -> Result<Self, Error> {
        // SAFETY: the caller vouches for the regions.
        Self::in_group(config, &unsafe { VcpuGroup::new(ram) }?)
    }

    /// The same in a guest's memory, which stays mapped as long as the processor lives.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot run translated code.
    pub fn in_memory(config: Config, memory: &host::GuestMemory) -> Result<Self, Error> {
        Self::in_group(config, &VcpuGroup::in_memory(memory)?)
    }

    /// A vCPU that shares memory and translations with the others of `group`.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot run translated code, or the group is full.
    pub fn in_group(config: Config, group: &Arc<VcpuGroup>) -> Result<Self, Error> {
        let (tracer, history_entries) = group.inspection();
        let mut cpu = Self {
            arch: Architectural::new(config, group)?,
            generation: group.generation(),
            dropped_jumps: 0,
            seen_changes: 0,
            jump_mode: Mode::default(),
            registration: None,
            pending: Pending::default(),
            history: crate::history::History::new(history_entries),
            tracer,
            helped_cycles: 0,
            left_at: 0,
            user: group
                .peers
                .plan
                .as_ref()
                .map(|plan| Box::new(crate::user::code::UserCode::new(plan))),
        };
        cpu.note_direct_wanted();
        Ok(cpu)
    }

    /// The registers.
    pub fn registers(&self) -> &Registers {
        &self.arch.context.regs
    }

    /// The registers, to be changed between runs. Everything cached from them is forgotten.
    pub fn registers_mut(&mut self) -> &mut Registers {
        self.arch.clear_cpuid_cache();
        self.arch.flush_tlb(crate::memory::Flush::All);
        &mut self.arch.context.regs
    }

    /// The standard-format XSAVE image of x87 and vector state (SDM 1 13.4).
    pub fn extended_state(&self) -> &[u8; XSAVE_BYTES] {
        &self.arch.context.xsave.0
    }

    /// The same, to be changed between runs.
    pub fn extended_state_mut(&mut self) -> &mut [u8; XSAVE_BYTES] {
        &mut self.arch.context.xsave.0
    }

    /// Back to the state after RESET.
    pub fn reset(&mut self) {
        self.arch.context.regs = Registers::reset();
        self.arch.context.xsave = crate::context::XsaveArea::initial();
        self.arch.replay = Replay::default();
        self.pending = Pending::default();
        self.arch.context.window_wanted = 0;
        self.arch.system.reset();
        self.arch.paravirtual = self.arch.config.board.paravirtual.then(Box::default);
        self.arch.clear_cpuid_cache();
        if let Some(spaces) = &mut self.arch.spaces {
            spaces.discard_all();
        }
        self.arch.flush_tlb(crate::memory::Flush::All);
    }

    /// Drop all translations, because memory was changed without notice to the vCPU.
    pub fn forget_code(&mut self) {
        self.drop_blocks();
        self.arch.ram.forget_present();
    }

    /// Count interpreted and assisted instructions by what they are.
    pub fn count_interpreted(&mut self) {
        self.arch.forms = Some(Box::default());
    }

    /// The instructions that the interpreter executed, most frequent first.
    pub fn most_interpreted(&self) -> Vec<(String, u64)> {
        self.arch.forms.as_ref().map_or_else(Vec::new, |forms| named(&forms.interpreted))
    }

    /// The instructions that were assisted, most frequent first.
    pub fn most_assisted(&self) -> Vec<(String, u64)> {
        self.arch.forms.as_ref().map_or_else(Vec::new, |forms| named(&forms.assisted))
    }

    /// A handle for other threads to make [`Self::run`] return.
    pub fn kick_handle(&self) -> Kick {
        Kick { state: Arc::clone(&self.arch.kick) }
    }

    /// Have [`Self::run`] return with [`Exit::Kicked`] once `after` has passed, whether it has begun by then or
    /// not. It replaces an alarm that was set before. To be called on the thread that runs the vCPU: the
    /// alarm is a timer of this thread, and no other thread takes part in it.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when the thread cannot be made one that runs a processor.
    pub fn set_alarm(&mut self, after: Duration) -> Result<(), Error> {
        self.bind_thread()?;
        if let Some(registration) = &self.registration {
            registration.alarm_after(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX).max(1));
        }
        Ok(())
    }

    /// Set no alarm any more. One that has gone off already stays so.
    pub fn clear_alarm(&mut self) {
        if let Some(registration) = &self.registration {
            registration.alarm_after(0);
        }
    }

    /// Whether the alarm has gone off since this was asked last. (That is not to be told from a clock: the host's
    /// timers and the counter that a machine's clock reads run apart by some parts in a million.)
    #[inline]
    pub fn take_alarm(&self) -> bool {
        self.arch.kick.take_alarm()
    }

    /// The history of the vCPU.
    pub fn history(&self) -> &crate::history::History {
        &self.history
    }

    /// Counters.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.arch.statistics;
        statistics.cache_bytes = self.arch.group.translator().cache.used() as u64;
        statistics.system_calls = self.arch.context.system_calls;
        statistics.crossings = self.arch.context.crossing.count;
        statistics.answered = self.arch.context.answered;
        if let Some(user) = &self.user {
            user.count_in(&mut statistics);
        }
        if let Some(spaces) = &self.arch.spaces {
            spaces.count_in(&mut statistics);
        }
        statistics
    }

    /// Answer an exit that asked for a value.
    pub fn complete_read(&mut self, value: u64) {
        self.history.answer(value);
        self.arch.replay.complete(value);
    }

    /// Say that the platform register was written.
    pub fn complete_write_msr(&mut self) {
        self.arch.replay.complete(0);
    }

    /// Say that the platform register does not exist, or not with that value.
    pub fn fail_msr(&mut self) {
        self.arch.replay.fail();
    }

    /// Whether an interrupt would be taken before the next instruction.
    pub fn can_inject_interrupt(&self) -> bool {
        let regs = &self.arch.context.regs;
        regs.interrupt_flag != 0
            && regs.interrupt_shadow == 0
            && self.pending.interrupt.is_none()
            && !self.arch.replay.has_question()
    }

    /// Have an external interrupt delivered at the next `run`; the caller has asked
    /// [`Self::can_inject_interrupt`].
    pub fn inject_interrupt(&mut self, vector: u8) {
        self.pending.interrupt = Some(vector);
    }

    /// Deliver a non-maskable interrupt as soon as the guest handles none.
    pub fn inject_nmi(&mut self) {
        self.pending.nmi = true;
    }

    /// Ask for [`Exit::InterruptWindow`] when [`Self::can_inject_interrupt`] becomes true.
    pub fn request_interrupt_window(&mut self, wanted: bool) {
        self.arch.context.window_wanted = u8::from(wanted);
    }
}

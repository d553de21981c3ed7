//! The architectural side of a vCPU: what the manuals describe, and nothing of how the guest's code is executed.
//!
//! It consists of the registers, the state of the system side, and memory as the guest addresses it: page tables, the
//! software TLB, the helpers' shadow address spaces (which are flushed as a TLB is), and the requests of an
//! instruction to the machine. [`interpret`](crate::interpret) and [`system`](crate::system) work on this state. They
//! know neither the run loop, nor which blocks exist, nor which threads of the guest execute directly. Where they
//! affect these, they do so through what the vCPUs of the machine share ([`VcpuGroup`]), as any other vCPU would.

use std::sync::Arc;

use iced_x86::{Instruction, InstructionInfoFactory};

use crate::config::{Config, Error};
use crate::context::Context;
use crate::exception::Trap;
use crate::exit::Exit;
use crate::kick::KickState;
use crate::memory::ram::Ram;
use crate::memory::tlb::Tlb;
use crate::memory::{Access, Linear, Privilege, Views};
use crate::native::call_out::CallOuts;
use crate::paravirtual::Paravirtual;
use crate::replay::Replay;
use crate::statistics::{Forms, Statistics};
use crate::stops::Debugging;
use crate::system::SystemState;
use crate::user::spaces::Spaces;
use crate::vcpu_group::VcpuGroup;

/// The architectural state of one processor, and its memory.
pub(crate) struct Architectural {
    /// Registers, and what else emitted code reaches through FS.
    pub(crate) context: Box<Context>,
    pub(crate) config: Config,
    pub(crate) group: Arc<VcpuGroup>,
    /// The index of this vCPU in its group.
    pub(crate) vcpu_index: usize,
    /// The mirror has been given up ([`Self::heed_mirror`]).
    pub(crate) without_mirror: bool,
    pub(crate) ram: Arc<Ram>,
    pub(crate) tlb: Tlb,
    pub(crate) views: Views,
    /// What helper processes have mapped of the guest's user address spaces, where there are helpers.
    pub(crate) spaces: Option<Box<Spaces>>,
    /// How innocuous instructions are executed by the host's processor.
    pub(crate) call_outs: CallOuts,
    pub(crate) info_factory: InstructionInfoFactory,
    pub(crate) replay: Replay,
    /// State of the instruction set that is not in the registers.
    pub(crate) system: SystemState,
    /// For a paravirtual kernel.
    pub(crate) paravirtual: Option<Box<Paravirtual>>,
    /// Requests of other threads; for one, a string instruction stops between two repetitions.
    pub(crate) kick: Arc<KickState>,
    /// CR3 was loaded since the run loop last checked. The run loop decides how threads of the address space execute.
    pub(crate) has_switched_spaces: bool,
    /// What a debugger wants.
    pub(crate) debugging: Debugging,
    pub(crate) statistics: Statistics,
    /// Instructions that were interpreted and assisted, by code, when counting is on.
    pub(crate) forms: Option<Box<Forms>>,
}

// SAFETY: the raw pointers inside are to memory owned by the processor or to guest RAM, which
// outlives it; a processor is used by one thread at a time.
unsafe impl Send for Architectural {}

impl Architectural {
    /// The state after RESET of another vCPU of `group`.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot run translated code, or the group is full.
    pub(crate) fn new(config: Config, group: &Arc<VcpuGroup>) -> Result<Self, Error> {
        let components = crate::native::check_host()?;
        let kick = Arc::new(KickState::default());
        let mut context = Context::new(components, &raw const kick.requested);
        context.leave = crate::native::leave_address().0;
        context.leave_unknown = crate::native::leave_unknown_address().0;
        context.foreign_mask = crate::native::enabled_components() & !components;
        context.unchainer = (&raw const group.unchainer).cast();
        (context.cache_start, context.cache_end) = group.translator().cache.bounds();
        let call_outs = CallOuts::new(&mut context)?;
        group.tell_of_place((context.call_outs_start.0, context.call_outs_end.0), "call_outs");
        let tlb = Tlb::new();
        context.physical_jumps = tlb.physical_jumps.address();
        let helpers = group.peers.plan.as_ref().map(|plan| Arc::clone(&plan.helpers));
        let spaces = helpers.map(|helpers| Box::new(Spaces::new(helpers)));
        let revocable = spaces.as_ref().map(|spaces| spaces.revocable());
        let vcpu_index = group.peers.join(&kick, tlb.shared(), revocable)?;
        Ok(Self {
            context,
            config,
            group: Arc::clone(group),
            vcpu_index,
            without_mirror: false,
            ram: Arc::clone(&group.peers.ram),
            tlb,
            views: Views::default(),
            spaces,
            call_outs,
            info_factory: InstructionInfoFactory::new(),
            replay: Replay::default(),
            system: SystemState::new(&config, components),
            paravirtual: config.board.paravirtual.then(Box::default),
            kick,
            has_switched_spaces: false,
            debugging: Debugging::none(),
            statistics: Statistics::default(),
            forms: None,
        })
    }

    // What instructions ask of the machine. All of it follows the replay protocol.

    pub(crate) fn port_read(&mut self, port: u16, size: u8) -> Result<u32, Trap> {
        self.replay.answer(Exit::IoRead { port, size }).map(|value| value as u32)
    }

    pub(crate) fn port_write(&mut self, port: u16, size: u8, value: u32) {
        self.replay.queue(Exit::IoWrite { port, size, value });
    }

    pub(crate) fn platform_msr_read(&mut self, index: u32) -> Result<u64, Trap> {
        self.replay.answer(Exit::MsrRead { index })
    }

    pub(crate) fn platform_msr_write(&mut self, index: u32, value: u64) -> Result<(), Trap> {
        self.replay.answer(Exit::MsrWrite { index, value }).map(drop)
    }

    pub(crate) fn hypercall(&mut self, number: u64, arguments: [u64; 4]) -> Result<u64, Trap> {
        self.replay.answer(Exit::Hypercall { number, arguments })
    }

    pub(crate) fn tpr_read(&mut self) -> Result<u64, Trap> {
        self.replay.answer(Exit::TprRead)
    }

    pub(crate) fn tpr_write(&mut self, value: u8) {
        self.replay.queue(Exit::TprWrite { value });
    }

    /// Tell the debug registers of a data access (SDM 3B 18.2), and a debugger outside.
    pub(crate) fn watch(&mut self, at: Linear, size: usize, access: Access, by: Privilege) {
        if self.context.regs.dr[7] & 0xff != 0 && by == Privilege::Current {
            self.note_data_access(at, size, access);
        }
        if self.debugging.watches() {
            self.debugging.note_access(at, size, access);
        }
    }

    /// Whether another thread wants the vCPU to leave the guest's code.
    pub(crate) fn is_kicked(&self) -> bool {
        self.kick.is_requested()
    }

    /// What CPUID answers.
    pub(crate) fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        let answer = self.system.cpuid(leaf, subleaf, &self.context.regs);
        match &self.paravirtual {
            Some(_) => crate::paravirtual::identity::shown(leaf, subleaf, answer),
            None => answer,
        }
    }

    /// What CPUID answers may have changed.
    pub(crate) fn clear_cpuid_cache(&mut self) {
        self.context.cpuid_cache.clear();
    }

    /// Count an instruction, once: not when it goes on with an answer that it has waited for.
    pub(crate) fn count(&mut self, instruction: &Instruction) {
        if let Some(forms) = &mut self.forms
            && !self.replay.has_question()
        {
            *forms.interpreted.entry(instruction.code()).or_insert(0) += 1;
        }
    }

    /// Count an instruction that is assisted.
    pub(crate) fn count_assisted(&mut self, instruction: &Instruction) {
        self.statistics.assisted += 1;
        if let Some(forms) = &mut self.forms {
            *forms.assisted.entry(instruction.code()).or_insert(0) += 1;
        }
    }
}

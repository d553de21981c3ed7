//! The architectural side of a processor: what the manuals describe, and nothing of how the guest's code is executed.
//!
//! Registers, the state of the system side, and memory as the guest addresses it: page tables, the software TLB, the
//! helpers' shadows of user address spaces (which are flushed as a TLB is), and what an instruction asks of the
//! machine. [`interpret`](crate::interpret) and [`system`](crate::system) work on this and know no more of the
//! processor: not the run loop, not which blocks there are, not who runs a thread of the guest's. What they do to
//! these they do through what belongs to all processors of the machine ([`Package`]), as any other processor would.

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
use crate::package::Package;
use crate::replay::Replay;
use crate::statistics::{Forms, Statistics};
use crate::system::SystemState;
use crate::user::spaces::Spaces;

/// The architectural state of one processor, and its memory.
pub(crate) struct Architectural {
    /// Registers, and what else emitted code reaches through FS.
    pub(crate) context: Box<Context>,
    pub(crate) config: Config,
    pub(crate) package: Arc<Package>,
    /// This processor's number in the package.
    pub(crate) member: usize,
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
    /// A string instruction stops between two repetitions if somebody wants the processor.
    pub(crate) kick: Arc<KickState>,
    /// CR3 was loaded since the run loop looked, which decides who runs the threads of the address space.
    pub(crate) has_switched_spaces: bool,
    pub(crate) statistics: Statistics,
    /// Instructions that were interpreted and assisted, by code, when counting is on.
    pub(crate) forms: Option<Box<Forms>>,
}

// SAFETY: the raw pointers inside are to memory owned by the processor or to guest RAM, which
// outlives it; a processor is used by one thread at a time.
unsafe impl Send for Architectural {}

impl Architectural {
    /// The state after RESET of another processor of `package`.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot run translated code, or the package is full.
    pub(crate) fn new(config: Config, package: &Arc<Package>) -> Result<Self, Error> {
        let components = crate::native::check_host()?;
        let kick = Arc::new(KickState::default());
        let mut context = Context::new(components, &raw const kick.requested);
        context.leave = crate::native::leave_address().0;
        context.leave_unknown = crate::native::leave_unknown_address().0;
        context.foreign_mask = crate::native::enabled_components() & !components;
        context.unchainer = (&raw const package.unchainer).cast();
        (context.cache_start, context.cache_end) = package.translator().cache.bounds();
        let call_outs = CallOuts::new(&mut context)?;
        package.tell_of_place((context.call_outs_start.0, context.call_outs_end.0), "call_outs");
        let tlb = Tlb::new();
        context.physical_jumps = tlb.physical_jumps.address();
        let helpers = package.members.plan.as_ref().map(|plan| Arc::clone(&plan.helpers));
        let spaces = helpers.map(|helpers| Box::new(Spaces::new(helpers)));
        let removable = spaces.as_ref().map(|spaces| spaces.removable());
        let member = package.members.join(&kick, tlb.shared(), removable)?;
        Ok(Self {
            context,
            config,
            package: Arc::clone(package),
            member,
            without_mirror: false,
            ram: Arc::clone(&package.members.ram),
            tlb,
            views: Views::default(),
            spaces,
            call_outs,
            info_factory: InstructionInfoFactory::new(),
            replay: Replay::default(),
            system: SystemState::new(&config, components),
            kick,
            has_switched_spaces: false,
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

    /// Tell the debug registers of a data access (SDM 3B 18.2).
    pub(crate) fn watch(&mut self, at: Linear, size: usize, access: Access, by: Privilege) {
        if self.context.regs.dr[7] & 0xff != 0 && by == Privilege::Current {
            self.note_data_access(at, size, access);
        }
    }

    /// Whether somebody wants the processor back.
    pub(crate) fn is_kicked(&self) -> bool {
        self.kick.is_requested()
    }

    /// What CPUID answers.
    pub(crate) fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        self.system.cpuid(leaf, subleaf, &self.context.regs)
    }

    /// What CPUID answers may have changed.
    pub(crate) fn forget_answers(&mut self) {
        self.context.answers.clear();
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

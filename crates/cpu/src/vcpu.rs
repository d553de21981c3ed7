//! One virtual processor: its state, the memory it sees, and the calls that a machine makes on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use iced_x86::{Code, InstructionInfoFactory};
use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::context::{Context, XSAVE_BYTES};
use crate::exception::Trap;
use crate::exit::Exit;
use crate::memory::ram::Ram;
use crate::memory::tlb::Tlb;
use crate::memory::{Access, Linear, Privilege};
use crate::native::signals::Registration;
use crate::native::stub::Stubs;
use crate::package::Package;
use crate::replay::Replay;
use crate::state::Registers;
use crate::translate::Mode;

/// A range of guest-physical memory and where it is mapped in this process.
#[derive(Debug, Clone, Copy)]
pub struct RamRegion {
    /// Guest-physical address of the first byte, page aligned.
    pub guest: u64,
    /// Bytes, a multiple of the page size.
    pub size: u64,
    /// Where the region is mapped, readable and writable, for as long as the processor lives.
    pub host: *mut u8,
}

/// What distinguishes one processor from another.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Initial APIC id, as CPUID reports it.
    pub apic_id: u32,
    /// Number of processors in the machine, for CPUID's topology leaves.
    pub processors: u32,
    /// Frequency of the time-stamp counter in kHz, announced through CPUID.
    pub tsc_khz: u32,
    /// Execute everything in the interpreter, one instruction at a time (slow; for comparison).
    pub interpret_only: bool,
    /// The board around it.
    pub board: Board,
}

/// What can go wrong in the host, not in the guest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host processor lacks something that translated code needs.
    #[error("this processor lacks {0}, which Bivouac needs")]
    MissingFeature(&'static str),
    /// More processors than a package holds.
    #[error("a machine has at most {0} processors")]
    TooManyProcessors(usize),
    /// User code cannot be run directly, and must not be translated.
    #[error("cannot run user code directly: {0}; --user-exec auto translates it instead")]
    Direct(#[from] direct::Error),
    /// A mapping, a signal handler or a timer could not be had.
    #[error("cannot {action}: {source}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// The operating system's answer.
        source: std::io::Error,
    },
}

/// Shared between a processor and those who kick it.
#[derive(Debug, Default)]
pub(crate) struct KickState {
    pub(crate) requested: AtomicU32,
    /// Thread that runs the processor, 0 when none does.
    pub(crate) thread: AtomicI32,
    /// The processor is in [`Vcpu::run`] (package.rs).
    busy: AtomicBool,
    /// Stops a helper process that the processor waits for (user/mod.rs).
    pub(crate) direct: direct::Kick,
    /// The alarm has gone off ([`Vcpu::set_alarm`]).
    has_gone_off: AtomicBool,
}

/// Somebody wants [`Vcpu::run`] to return.
const RETURN: u32 = 1;

/// Another processor wants to be alone.
const WAIT: u32 = 2;

/// The processor is to come to the head of its run loop.
const LOOK: u32 = 4;

/// It is to look at what its user code does.
const CONSIDER: u32 = 8;

impl KickState {
    /// Take the request to return back, if there is one.
    pub(crate) fn take(&self) -> bool {
        self.requested.load(Ordering::SeqCst) & RETURN != 0
            && self.requested.fetch_and(!RETURN, Ordering::SeqCst) & RETURN != 0
    }

    fn is_requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst) != 0
    }

    /// Whether another processor wants to be alone.
    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        self.requested.load(Ordering::SeqCst) & WAIT != 0
    }

    /// Have the processor wait before it goes on.
    pub(crate) fn ask_to_wait(&self) {
        self.request(WAIT);
    }

    /// Have the processor come to the head of its run loop, where it sees what has changed.
    pub(crate) fn ask_to_look(&self) {
        self.request(LOOK);
    }

    /// It is there.
    #[inline]
    pub(crate) fn has_looked(&self) {
        if self.requested.load(Ordering::SeqCst) & LOOK != 0 {
            self.requested.fetch_and(!LOOK, Ordering::SeqCst);
        }
    }

    /// Take the timer's request back, if there is one.
    #[inline]
    pub(crate) fn take_consider(&self) -> bool {
        self.requested.load(Ordering::SeqCst) & CONSIDER != 0
            && self.requested.fetch_and(!CONSIDER, Ordering::SeqCst) & CONSIDER != 0
    }

    /// Undo [`Self::ask_to_wait`].
    pub(crate) fn let_go(&self) {
        self.requested.fetch_and(!WAIT, Ordering::SeqCst);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::SeqCst);
    }

    /// The timer for looks has gone off. For a signal's handler on the processor's thread.
    pub(crate) fn consider(&self) {
        self.requested.fetch_or(CONSIDER, Ordering::SeqCst);
    }

    /// The alarm has gone off. For a signal's handler on the processor's thread: no lock, no thread-local storage.
    pub(crate) fn alarm(&self) {
        self.has_gone_off.store(true, Ordering::SeqCst);
        self.requested.fetch_or(RETURN, Ordering::SeqCst);
        self.direct.kick();
    }

    /// Whether the alarm has gone off since this was asked last.
    #[inline]
    fn take_alarm(&self) -> bool {
        self.has_gone_off.load(Ordering::SeqCst) && self.has_gone_off.swap(false, Ordering::SeqCst)
    }

    fn request(&self, what: u32) {
        if self.requested.fetch_or(what, Ordering::SeqCst) & what != 0 {
            return;
        }
        self.direct.kick();
        let thread = self.thread.load(Ordering::SeqCst);
        // SAFETY: sending a signal to a thread of this process; if it has ended, the call fails.
        unsafe {
            if thread != 0 && thread != libc::gettid() {
                let signal = crate::native::signals::kick_signal();
                libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal);
            }
        }
    }
}

/// Makes [`Vcpu::run`] return soon with [`Exit::Kicked`]; may be used from any thread.
#[derive(Debug, Clone)]
pub struct Kick {
    state: Arc<KickState>,
}

impl Kick {
    /// Ask the processor to come back. A request made while it is not running is honoured at the
    /// next [`Vcpu::run`].
    pub fn kick(&self) {
        self.state.request(RETURN);
    }
}

/// Counters of one processor since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks translated.
    pub blocks: u64,
    /// Guest instructions in them.
    pub block_instructions: u64,
    /// Instructions executed by the interpreter.
    pub interpreted: u64,
    /// Instructions of blocks that Rust executed without leaving the block for the run loop.
    pub assisted: u64,
    /// Times that `cpuid` was answered without Rust.
    pub answered: u64,
    /// Times translated code was entered.
    pub entries: u64,
    /// TLB misses taken by translated code.
    pub misses: u64,
    /// Pages entered into the TLB.
    pub tlb_fills: u64,
    /// TLB flushes of any kind.
    pub tlb_flushes: u64,
    /// Jumps that were linked to their target.
    pub links: u64,
    /// Look-ups of indirect and page-crossing jumps that left translated code.
    pub lookups: u64,
    /// Blocks dropped because their bytes were written.
    pub invalidated_blocks: u64,
    /// Times the code cache was full.
    pub cache_drops: u64,
    /// Host faults in kernel code that reaches memory through the host's MMU.
    pub mirror_faults: u64,
    /// Kernel instructions translated again with a look-up because of one.
    pub mirror_exceptions: u64,
    /// Accesses that crossed a page and were split in translated code.
    pub crossings: u64,
    /// Accesses that crossed a page, and would have needed nothing but that, and were interpreted.
    pub crossings_interpreted: u64,
    /// Exceptions delivered to the guest.
    pub exceptions: u64,
    /// Interrupts delivered to the guest.
    pub interrupts: u64,
    /// System calls of 64-bit user code.
    pub system_calls: u64,
    /// Runs of user code in helper processes, and cycles of the time-stamp counter in them.
    pub direct_runs: u64,
    /// See [`Self::direct_runs`].
    pub direct_cycles: u64,
    /// Runs that ended because the guest's kernel, or the interpreter, was needed.
    pub direct_entries: u64,
    /// Runs that ended because something was not mapped in the helper.
    pub direct_misses: u64,
    /// Runs that ended at a page that must not run directly.
    pub direct_held: u64,
    /// Helper processes made.
    pub direct_spaces: u64,
    /// Pages mapped in them.
    pub direct_pages: u64,
    /// Times that the pages of a helper were compared with the page tables.
    pub direct_flushes: u64,
    /// Times that the timer for it went off, to look at what user code does.
    pub direct_timer_looks: u64,
    /// Looks that could tell something.
    pub direct_looks: u64,
    /// Times that a thread began to run directly because it computes.
    pub direct_promotions: u64,
    /// Of these, because its program is known to.
    pub direct_begun: u64,
    /// Times that it went back to be translated because it enters its kernel often.
    pub direct_demotions: u64,
    /// Of these, because it kept coming to pages that must not run directly.
    pub direct_barred: u64,
    /// Bytes of code cache in use.
    pub cache_bytes: u64,
}

/// How often instructions were executed, by code.
pub(crate) type Counts = std::collections::HashMap<Code, u64>;

/// Instructions that translated code has left to Rust.
#[derive(Debug, Default)]
pub(crate) struct Forms {
    pub(crate) interpreted: Counts,
    pub(crate) assisted: Counts,
}

/// Counts under names for people, most frequent first.
fn named(counts: &Counts) -> Vec<(String, u64)> {
    let mut sums = std::collections::BTreeMap::<String, u64>::new();
    for (&code, &count) in counts {
        *sums.entry(name_of(code)).or_default() += count;
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    rows
}

/// The mnemonic; for a `mov` with a special register also which kind that is.
fn name_of(code: Code) -> String {
    let special = match code {
        Code::Mov_cr_r64 | Code::Mov_cr_r32 => " to cr",
        Code::Mov_r64_cr | Code::Mov_r32_cr => " from cr",
        Code::Mov_dr_r64 | Code::Mov_dr_r32 => " to dr",
        Code::Mov_r64_dr | Code::Mov_r32_dr => " from dr",
        Code::Mov_Sreg_rm16 | Code::Mov_Sreg_r32m16 | Code::Mov_Sreg_r64m16 => " to segment",
        _ => "",
    };
    format!("{:?}", code.mnemonic()).to_lowercase() + special
}

/// A virtual processor.
pub struct Vcpu {
    pub(crate) context: Box<Context>,
    pub(crate) config: Config,
    pub(crate) package: Arc<Package>,
    /// This processor's number in the package.
    pub(crate) member: usize,
    /// The generation of the code cache that the jump caches belong to.
    pub(crate) generation: u64,
    /// The last order to forget them that was heeded.
    pub(crate) dropped_jumps: u64,
    /// How many changes of code it has seen (translate/views.rs).
    pub(crate) seen_changes: u64,
    /// The mirror has been given up ([`Vcpu::heed_mirror`]).
    pub(crate) without_mirror: bool,
    pub(crate) ram: Arc<Ram>,
    pub(crate) tlb: Tlb,
    pub(crate) views: crate::memory::Views,
    /// Mode bits under which the jump caches were filled.
    pub(crate) jump_mode: Mode,
    pub(crate) stubs: Stubs,
    pub(crate) info_factory: InstructionInfoFactory,
    pub(crate) replay: Replay,
    pub(crate) kick: Arc<KickState>,
    pub(crate) registration: Option<Registration>,
    pub(crate) statistics: Statistics,
    pub(crate) pending: Pending,
    pub(crate) history: crate::history::History,
    /// Who follows what the processor does (inspect.rs).
    pub(crate) tracer: Option<Arc<dyn crate::inspect::Tracer>>,
    /// Semantic state of the instruction set that is not in the registers.
    pub(crate) system: crate::system::SystemState,
    /// Cycles of the time-stamp counter for which translated user code waited to be helped, and when
    /// translated code was left last.
    pub(crate) helped_cycles: u64,
    pub(crate) left_at: u64,
    /// Direct execution of user code, if there is any.
    pub(crate) user: Option<Box<crate::user::UserCode>>,
    /// Instructions that were interpreted and assisted, by code, when counting is on.
    pub(crate) forms: Option<Box<Forms>>,
}

// SAFETY: the raw pointers inside are to memory owned by the processor or to guest RAM, which
// outlives it; a processor is used by one thread at a time.
unsafe impl Send for Vcpu {}

/// Events that wait for the processor to take them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) interrupt: Option<u8>,
    pub(crate) nmi: bool,
    /// `hlt` was executed and nothing has woken the processor since.
    pub(crate) halted: bool,
    /// An exception that interrupted translated code and is yet to be delivered.
    pub(crate) shut_down: bool,
}

impl Vcpu {
    /// A processor of its own package, in the state after RESET.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot run translated code.
    ///
    /// # Safety
    ///
    /// As for [`Package::new`].
    pub unsafe fn new(config: Config, ram: Vec<RamRegion>) -> Result<Self, Error> {
        // SAFETY: the caller vouches for the regions.
        Self::in_package(config, &unsafe { Package::new(ram) }?)
    }

    /// The same in a guest's memory, which stays mapped as long as the processor lives.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot run translated code.
    pub fn in_memory(config: Config, memory: &host::GuestMemory) -> Result<Self, Error> {
        Self::in_package(config, &Package::in_memory(memory)?)
    }

    /// A processor that shares memory and translations with the others of `package`.
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot run translated code, or the package is full.
    pub fn in_package(config: Config, package: &Arc<Package>) -> Result<Self, Error> {
        let components = crate::native::check_host()?;
        let kick = Arc::new(KickState::default());
        let mut context = Context::new(components, &raw const kick.requested);
        context.stopper = (&raw const package.stopper).cast();
        (context.cache_start, context.cache_end) = package.translator().cache.bounds();
        let stubs = Stubs::new(&mut context)?;
        package.tell_of_place((context.stubs_start, context.stubs_end), "stubs");
        let system = crate::system::SystemState::new(&config, components);
        let tlb = Tlb::new();
        context.physical_jumps = tlb.physical_jumps.address();
        let user = package.plan.as_ref().map(|plan| Box::new(crate::user::UserCode::new(plan)));
        let removable = user.as_ref().map(|user| user.spaces.removable());
        let (tracer, history_entries) = package.inspection();
        let member = package.join(&kick, tlb.shared(), removable)?;
        let mut cpu = Self {
            context,
            config,
            package: Arc::clone(package),
            member,
            generation: package.generation(),
            dropped_jumps: 0,
            seen_changes: 0,
            without_mirror: false,
            ram: Arc::clone(&package.ram),
            tlb,
            views: crate::memory::Views::default(),
            jump_mode: Mode::default(),
            stubs,
            info_factory: InstructionInfoFactory::new(),
            replay: Replay::default(),
            kick,
            registration: None,
            statistics: Statistics::default(),
            pending: Pending::default(),
            history: crate::history::History::new(history_entries),
            tracer,
            system,
            helped_cycles: 0,
            left_at: 0,
            user,
            forms: None,
        };
        cpu.note_direct_wanted();
        Ok(cpu)
    }

    /// The registers.
    pub fn registers(&self) -> &Registers {
        &self.context.regs
    }

    /// The registers, to be changed between runs. Everything cached from them is forgotten.
    pub fn registers_mut(&mut self) -> &mut Registers {
        self.forget_answers();
        self.flush_tlb(crate::memory::Flush::All);
        &mut self.context.regs
    }

    /// The standard-format XSAVE image of x87 and vector state (SDM 1 13.4).
    pub fn extended_state(&self) -> &[u8; XSAVE_BYTES] {
        &self.context.xsave.0
    }

    /// The same, to be changed between runs.
    pub fn extended_state_mut(&mut self) -> &mut [u8; XSAVE_BYTES] {
        &mut self.context.xsave.0
    }

    /// Back to the state after RESET.
    pub fn reset(&mut self) {
        self.context.regs = Registers::reset();
        self.context.xsave = crate::context::XsaveArea::initial();
        self.replay = Replay::default();
        self.pending = Pending::default();
        self.context.window_wanted = 0;
        self.system.reset();
        self.forget_answers();
        if let Some(user) = &mut self.user {
            user.spaces.discard_all();
        }
        self.flush_tlb(crate::memory::Flush::All);
    }

    /// Forget all translations: memory was changed behind the processor's back.
    pub fn forget_code(&mut self) {
        self.drop_blocks();
        self.ram.forget_present();
    }

    /// Count interpreted and assisted instructions by what they are.
    pub fn count_interpreted(&mut self) {
        self.forms = Some(Box::default());
    }

    /// The instructions that the interpreter executed, most frequent first.
    pub fn most_interpreted(&self) -> Vec<(String, u64)> {
        self.forms.as_ref().map_or_else(Vec::new, |forms| named(&forms.interpreted))
    }

    /// The instructions that were assisted, most frequent first.
    pub fn most_assisted(&self) -> Vec<(String, u64)> {
        self.forms.as_ref().map_or_else(Vec::new, |forms| named(&forms.assisted))
    }

    /// Something that makes [`Self::run`] return.
    pub fn kick_handle(&self) -> Kick {
        Kick { state: Arc::clone(&self.kick) }
    }

    /// Have [`Self::run`] return with [`Exit::Kicked`] once `after` has passed, whether it has begun by then or
    /// not. It replaces an alarm that was set before. To be called on the thread that runs the processor, for
    /// which it is a timer of the host's: no other thread has a part in it.
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
        self.kick.take_alarm()
    }

    /// What the processor did last.
    pub fn history(&self) -> &crate::history::History {
        &self.history
    }

    /// Counters.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.statistics;
        statistics.cache_bytes = self.package.translator().cache.used() as u64;
        statistics.system_calls = self.context.system_calls;
        statistics.crossings = self.context.crossing.count;
        statistics.answered = self.context.answered;
        if let Some(user) = &self.user {
            user.count_in(&mut statistics);
        }
        statistics
    }

    /// Answer an exit that asked for a value.
    pub fn complete_read(&mut self, value: u64) {
        self.history.answer(value);
        self.replay.complete(value);
    }

    /// Say that the platform register was written.
    pub fn complete_write_msr(&mut self) {
        self.replay.complete(0);
    }

    /// Say that the platform register does not exist, or not with that value.
    pub fn fail_msr(&mut self) {
        self.replay.fail();
    }

    /// Whether an interrupt would be taken before the next instruction.
    pub fn can_inject_interrupt(&self) -> bool {
        let regs = &self.context.regs;
        regs.interrupt_flag != 0
            && regs.interrupt_shadow == 0
            && self.pending.interrupt.is_none()
            && !self.replay.has_question()
    }

    /// Have an external interrupt delivered at the next `run`; the caller has asked
    /// [`Self::can_inject_interrupt`].
    pub fn inject_interrupt(&mut self, vector: u8) {
        self.pending.interrupt = Some(vector);
    }

    /// Have a non-maskable interrupt delivered as soon as none is being handled.
    pub fn inject_nmi(&mut self) {
        self.pending.nmi = true;
    }

    /// Ask for [`Exit::InterruptWindow`] when [`Self::can_inject_interrupt`] becomes true.
    pub fn request_interrupt_window(&mut self, wanted: bool) {
        self.context.window_wanted = u8::from(wanted);
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
}

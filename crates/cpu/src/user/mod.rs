//! Guest user code: translated, or run directly in a helper process.
//!
//! The idea. User code computes, and calls its kernel. For translated code a kernel call costs nothing extra,
//! because kernel and user code are blocks of the same cache, but it accesses memory through a look-up.
//! A helper process (crate `direct`) computes at the host's own speed, but a stop of it costs
//! microseconds. So each thread of the guest executes in the way that costs it less (choice.rs), and
//! may change at any instruction, because both ways keep the same registers.
//!
//! What keeps it exact:
//!
//! 1. *Direct execution is a part of the run loop's pass.* It starts at an instruction boundary with
//!    precise state and ends at one. What it cannot do, the interpreter does at that boundary: a
//!    fault in a helper says where, and the interpreter says what.
//! 2. *Only what a helper can be exact in is run by it* ([`Vcpu::may_run_directly`]): flat 64-bit
//!    code, with all of the host's extended state switched on, and nothing that needs a look at
//!    every instruction.
//! 3. *A space is a TLB* (spaces.rs), and the guest's kernel decides what is in it.
//! 4. *Instructions that would tell about the host* are never executable in a helper (page.rs).
//! 5. *A return to user code must come to the run loop* while some thread of the address space is
//!    direct: `sysretq` and `iretq` in translated code look at a flag for this when they are done.

mod calibrate;
mod choice;
pub(crate) mod code;
pub(crate) mod copies;
mod look;
mod page;
pub(crate) mod plan;
mod programs;
pub(crate) mod revocable;
pub(crate) mod spaces;

use std::sync::Arc;

use direct::Stop;

use crate::exception::{Exception, Vector};
use crate::exit::Exit;
use crate::history::Happened;
use crate::memory::paging::{Accessor, LARGE_BYTES, walk};
use crate::memory::{Access, Linear, PAGE_SIZE, Physical, Privilege};
use crate::state::{SegmentRegister, cr4, efer, rflags};
use crate::system::{flat, null_segment};
use crate::techniques::Technique;
use crate::time::time_stamp;
use crate::translate::Vectors;
use crate::vcpu::Vcpu;
pub use calibrate::stop_cycles;
use choice::{Cause, ThreadKey};
use code::UserCode;
use plan::Plan;
pub use plan::UserExecution;
use spaces::{FAULT_WINDOW, Filled, Guest, Spaces, root_of};

/// Faults in a row at one address before the interpreter executes the instruction.
const MAX_REPEATS: u32 = 4;

/// How many stops' worth an exception, as a rule a page fault, costs a thread that runs directly: the helper
/// has to map something afterwards.
const FAULT_STOPS: u64 = 3;

/// For how many stops' worth direct execution is suspended after a forbidden page.
const SUSPENSION_STOPS: u64 = 3;

/// How many stops' worth a run has to take before the host is asked for how much of it the helper had a core.
const LONG_RUN: u64 = 100;

/// CS and SS of user code, as helpers have them.
const USER_CODE: u16 = 0x33;
const USER_DATA: u16 = 0x2b;

/// Accessed, readable code at CPL 3, present, G, D.
const CODE_32: u16 = 0xc09b;

/// One run of a helper.
struct Run {
    /// The number of its space.
    space: usize,
    /// Time-stamp counter when the helper was let go.
    began: u64,
    stop: Stop,
}

impl Vcpu {
    fn thread_key(&self) -> ThreadKey {
        let regs = &self.arch.context.regs;
        let fs_base = regs.segment(SegmentRegister::Fs).base;
        ThreadKey { root: root_of(self.arch.user_root()), fs_base }
    }

    /// Whether the next instruction is user code that is to run directly.
    pub(crate) fn wants_direct(&self) -> bool {
        if self.arch.context.direct_wanted == 0 || !self.arch.context.regs.mode().is_user() {
            return false;
        }
        self.user.as_ref().is_some_and(|user| {
            user.chooses(self.thread_key())
                && self.may_run_directly()
                && (user.suspended_until == 0 || user.suspended_until <= time_stamp())
        })
    }

    /// Whether a helper would be exact.
    fn may_run_directly(&self) -> bool {
        let regs = &self.arch.context.regs;
        let flags = regs.rflags();
        let segments = [(SegmentRegister::Cs, USER_CODE), (SegmentRegister::Ss, USER_DATA)];
        regs.long_mode()
            && regs.mode().is_64_bit()
            && flags & (rflags::TF | rflags::VM | rflags::IOPL) == 0
            && flags & rflags::IF != 0
            && regs.interrupt_shadow == 0
            && regs.dr[7] & 0xff == 0
            && !self.arch.debugging.watches()
            && regs.efer & efer::NXE != 0
            && regs.cr4 & cr4::FSGSBASE != 0
            && segments.iter().all(|&(which, wanted)| regs.segment(which).selector == wanted)
            && self.arch.translation_mode().vectors == Vectors::All
            && !self.arch.replay.has_question()
    }

    /// Another address space is current, or threads have changed how they execute.
    pub(crate) fn note_direct_wanted(&mut self) {
        let cr3 = self.arch.user_root();
        let wanted = self.user.as_mut().is_some_and(|user| user.is_wanted(cr3));
        self.arch.context.direct_wanted = u8::from(wanted);
    }

    /// Run user code directly until it stops.
    pub(crate) fn run_direct(&mut self) -> Option<Exit> {
        let key = self.thread_key();
        let (mut user, mut spaces) = (self.user.take()?, self.arch.spaces.take()?);
        let came = time_stamp();
        let stopped = self.run_in_space(&mut user, &mut spaces);
        self.left_at = time_stamp();
        let began = stopped.as_ref().map_or(came, |run| run.began);
        let cycles = self.left_at.wrapping_sub(began);
        user.choice.spent(key, began.wrapping_sub(came));
        user.counters.runs += 1;
        user.counters.cycles += cycles;
        let Run { space, stop, .. } = match stopped {
            Ok(run) => run,
            Err(error) => {
                tracing::warn!(%error, "a guest program is translated");
                user.choice.ban(key);
                (self.user, self.arch.spaces) = (Some(user), Some(spaces));
                self.note_direct_wanted();
                return None;
            }
        };
        self.note(Happened::Left { rip: self.arch.context.regs.rip, why: "stopped" });
        let cause = match stop {
            Stop::Kicked => Cause::Kick,
            Stop::Exception { vector: 14, .. } => Cause::Miss,
            _ => Cause::Entry,
        };
        user.counters.entries += u64::from(cause == Cause::Entry);
        // What the program has had, without what it costs to let it go and to stop it.
        let long = LONG_RUN * user.plan.stop;
        let had = spaces.had_core(space, cycles, long, self.arch.config.tsc_khz);
        let ran = had.saturating_sub(user.plan.stop);
        let stays = user.is_always() || user.choice.stopped(key, ran, self.left_at, cause);
        (self.user, self.arch.spaces) = (Some(user), Some(spaces));
        if !stays {
            self.note_direct_wanted();
        }
        self.serve_stop(key, space, stop)
    }

    /// Make the space ready, and run its helper once.
    fn run_in_space(
        &mut self,
        user: &mut UserCode,
        spaces: &mut Spaces,
    ) -> Result<Run, direct::Error> {
        let plan = Arc::clone(&user.plan);
        let guest = self.guest(&plan);
        let space = spaces.select(&guest, self.arch.current_pcid())?;
        if let Some((key, at, access)) = user.own_fault.take()
            && key == self.thread_key()
        {
            let window = guest.window.min(FAULT_WINDOW);
            spaces.fill(space, &Guest { window, ..guest }, at, access)?;
        }
        let mut frame = self.frame();
        let before = frame;
        let extended = &mut self.arch.context.xsave.0;
        let helper = spaces.ready(space)?;
        let began = time_stamp();
        let stop = helper.run(&mut frame, extended, &self.arch.kick.direct);
        if !matches!(stop, Stop::Unsupported | Stop::Refused | Stop::Died) {
            self.take_frame(&frame, &before);
        }
        Ok(Run { space, began, stop })
    }

    fn guest<'a>(&'a self, plan: &'a Plan) -> Guest<'a> {
        let Plan { memory, copies, .. } = plan;
        let batches = self.arch.group.techniques.has(Technique::Batches);
        let window = if batches { LARGE_BYTES } else { PAGE_SIZE };
        let cr3 = self.arch.context.regs.cr3;
        let time_stamp = self.direct_time_stamp();
        Guest {
            ram: &self.arch.ram,
            memory,
            copies,
            debugging: &self.arch.debugging,
            vcpu_index: self.arch.vcpu_index,
            cr3,
            time_stamp,
            window,
        }
    }

    /// How direct code reads the time-stamp counter. In a machine that was restored from a snapshot the counter has an
    /// offset, and the interpreter reads it.
    fn direct_time_stamp(&self) -> direct::TimeStamp {
        let regs = &self.arch.context.regs;
        match regs.tsc_offset == 0 && regs.cr4 & cr4::TSD == 0 {
            true => direct::TimeStamp::Native,
            false => direct::TimeStamp::Faults,
        }
    }

    fn frame(&self) -> direct::Registers {
        use SegmentRegister::{Cs, Ds, Es, Fs, Gs, Ss};
        let regs = &self.arch.context.regs;
        let selector = |which| regs.segment(which).selector;
        direct::Registers {
            general: regs.gpr,
            rip: regs.rip,
            rflags: regs.rflags(),
            fs_base: regs.segment(Fs).base,
            gs_base: regs.segment(Gs).base,
            cs: selector(Cs),
            ss: selector(Ss),
            selectors: [selector(Ds), selector(Es), selector(Fs), selector(Gs)],
        }
    }

    fn take_frame(&mut self, frame: &direct::Registers, before: &direct::Registers) {
        use SegmentRegister::{Cs, Ds, Es, Fs, Gs};
        let regs = &mut self.arch.context.regs;
        (regs.gpr, regs.rip) = (frame.general, frame.rip);
        // RF is the host's, which has faulted; what the guest is to see of it is said on delivery.
        regs.set_rflags(frame.rflags & !rflags::RF);
        if frame.cs != before.cs {
            *regs.segment_mut(Cs) = flat(frame.cs, CODE_32);
        }
        let selectors =
            [Ds, Es, Fs, Gs].into_iter().zip(frame.selectors.into_iter().zip(before.selectors));
        for (which, (now, then)) in selectors {
            // What the program has loaded is a selector that its own tables have too, or it is as
            // if it had loaded the null selector.
            if now != then && self.arch.load_segment(which, now).is_err() {
                *self.arch.context.regs.segment_mut(which) = null_segment(0);
            }
        }
        let regs = &mut self.arch.context.regs;
        regs.segment_mut(Fs).base = frame.fs_base;
        regs.segment_mut(Gs).base = frame.gs_base;
    }

    fn serve_stop(&mut self, key: ThreadKey, space: usize, stop: Stop) -> Option<Exit> {
        match stop {
            Stop::Kicked => None,
            Stop::SystemCall => self.enter_kernel(),
            Stop::LegacyCall => self.interpret_behind(2),
            Stop::Exception { vector: 14, error, address, .. } => {
                self.serve_space_fault(key, space, Linear(address), error)
            }
            Stop::Exception { vector: 1, single_step: true, .. } => {
                /// DR6.BS.
                const SINGLE_STEP: u64 = 1 << 14;
                let exception = Exception::plain(Vector::Debug);
                self.raise(Exception { payload: SINGLE_STEP, ..exception })
            }
            Stop::Exception { vector: 1, .. } => self.interpret_int1(),
            Stop::Exception { vector: 3, .. } => self.interpret_breakpoint(),
            // `int 4`: nothing else raises #OF in 64-bit code.
            Stop::Exception { vector: 4, .. } => self.interpret_behind(2),
            // The interpreter knows what the instruction does, and what it raises.
            Stop::Exception { .. } | Stop::NoMemory => self.interpret(),
            Stop::Unsupported => {
                self.suspend_direct();
                None
            }
            Stop::Refused => {
                let emptied = self.arch.spaces.as_mut().map(|spaces| spaces.empty(space));
                if let Some(Err(error)) = emptied {
                    self.give_up(key, space, &error);
                }
                None
            }
            Stop::Died => {
                tracing::warn!("the helper of a guest program has died; the program faults");
                self.give_up(key, space, &"it has died");
                self.raise(Exception::general_protection(0))
            }
        }
    }

    /// Translate a thread from now on.
    fn give_up(&mut self, key: ThreadKey, space: usize, why: &dyn std::fmt::Display) {
        tracing::debug!(%why, "no more direct execution for a thread");
        if let Some(spaces) = &mut self.arch.spaces {
            spaces.discard(space);
        }
        if let Some(user) = &mut self.user {
            user.choice.ban(key);
        }
        self.note_direct_wanted();
    }

    /// Suspend direct execution for a while: everything is translated.
    fn suspend_direct(&mut self) {
        if let Some(user) = &mut self.user {
            user.counters.suspensions += 1;
            user.suspended_until = time_stamp().wrapping_add(SUSPENSION_STOPS * user.plan.stop);
        }
        self.return_after(SUSPENSION_STOPS);
    }

    /// `syscall`, which the helper has executed as far as a helper can.
    fn enter_kernel(&mut self) -> Option<Exit> {
        if self.arch.context.regs.efer & efer::SCE == 0 {
            return self.interpret_behind(2);
        }
        self.arch.context.system_calls += 1;
        self.arch.replay.begin();
        match self.arch.syscall(&iced_x86::Instruction::default()) {
            Ok(()) => {
                self.arch.replay.end();
                None
            }
            Err(trap) => self.take_trap(trap),
        }
    }

    /// Interpret an instruction that the helper has left behind it.
    fn interpret_behind(&mut self, bytes: u64) -> Option<Exit> {
        self.arch.context.regs.rip = self.arch.context.regs.rip.wrapping_sub(bytes);
        self.interpret()
    }

    /// `int3`, in either encoding.
    fn interpret_breakpoint(&mut self) -> Option<Exit> {
        /// The instruction that is one byte long.
        const INT3: u8 = 0xcc;
        let short = self.code_byte(self.arch.context.regs.rip.wrapping_sub(1)) == Some(INT3);
        self.interpret_behind(if short { 1 } else { 2 })
    }

    /// `int1`. A processor has it behind it; under some hypervisors it is said to be still ahead.
    fn interpret_int1(&mut self) -> Option<Exit> {
        /// The instruction.
        const INT1: u8 = 0xf1;
        let rip = self.arch.context.regs.rip;
        let behind = self.code_byte(rip.wrapping_sub(1)) == Some(INT1);
        match self.code_byte(rip) {
            _ if behind => self.interpret_behind(1),
            Some(INT1) => self.interpret(),
            _ => self.raise(Exception::plain(Vector::Debug)),
        }
    }

    fn code_byte(&mut self, at: u64) -> Option<u8> {
        let mut byte = [0];
        self.arch.read_linear(Linear(at), &mut byte, Privilege::Current).ok()?;
        Some(byte[0])
    }

    /// A page fault in a helper: map what the guest allows, or let the guest have its fault.
    fn serve_space_fault(
        &mut self,
        key: ThreadKey,
        space: usize,
        at: Linear,
        error: u16,
    ) -> Option<Exit> {
        const WRITE: u16 = 1 << 1;
        const FETCH: u16 = 1 << 4;
        let access = match error {
            _ if error & FETCH != 0 => Access::Execute,
            _ if error & WRITE != 0 => Access::Write,
            _ => Access::Read,
        };
        let by = Accessor { user: true, smap_override: false };
        let found = match walk(&self.arch.ram, &self.arch.context.regs, at, access, by) {
            Ok(found) => found,
            Err(exception) => {
                let premap = self.arch.group.techniques.has(Technique::Premap);
                if let Some(user) = self.user.as_mut().filter(|_| premap) {
                    user.own_fault = Some((key, at, access));
                }
                return self.raise(exception);
            }
        };
        if self.arch.ram.host(found.physical).is_none() || self.is_repeated_fault(at) {
            return self.interpret();
        }
        if access == Access::Write && self.arch.ram.has_code(found.physical) {
            self.drop_translations_of(found.physical.page());
        }
        let user = self.user.as_mut()?;
        user.counters.misses += 1;
        let plan = Arc::clone(&user.plan);
        let mut spaces = self.arch.spaces.take()?;
        let filled = match spaces.fill(space, &self.guest(&plan), at, access) {
            Ok(Filled::Forbidden) if self.copies_page(at) => {
                self.copy_page(&plan, spaces.forbidden(), found.physical.page());
                spaces.fill(space, &self.guest(&plan), at, access)
            }
            filled => filled,
        };
        self.arch.spaces = Some(spaces);
        if let Some(user) = &mut self.user {
            user.choice.spent(key, time_stamp().wrapping_sub(self.left_at));
        }
        match filled {
            Ok(Filled::Mapped) => None,
            Ok(Filled::Forbidden) => {
                self.suspend_direct();
                let (now, page) = (self.left_at, found.physical.page().0);
                let user = self.user.as_mut()?;
                if !user.is_always() && !user.choice.barred(key, page, now) {
                    self.note_direct_wanted();
                }
                None
            }
            Ok(Filled::Refused) => self.interpret(),
            Err(error) => {
                self.give_up(key, space, &error);
                None
            }
        }
    }

    /// Whether a page is worth copying for helpers: not one that a debugger has a breakpoint in.
    fn copies_page(&self, at: Linear) -> bool {
        self.arch.group.techniques.has(Technique::Copies) && !self.arch.debugging.breaks_in(at)
    }

    /// Have a copy of a page made for helpers to execute, if that is possible.
    fn copy_page(&self, plan: &Plan, forbidden: page::Forbidden, page: Physical) {
        let arch = &self.arch;
        let translator = arch.group.translator();
        if arch.group.is_protected(page) {
            let starts = translator.instruction_starts(page);
            plan.copies.make(starts, &arch.ram, &plan.memory, forbidden, page);
        }
    }

    /// A helper is about to write a page.
    fn drop_translations_of(&mut self, page: Physical) {
        let arch = &mut self.arch;
        let mut translator = arch.group.translator();
        let dropped = translator.invalidate(page, PAGE_SIZE as usize, &arch.group.peers);
        arch.statistics.invalidated_blocks += dropped;
    }

    /// Whether this very fault was served several times in a row without success.
    fn is_repeated_fault(&mut self, at: Linear) -> bool {
        let rip = self.arch.context.regs.rip;
        let Some(user) = &mut self.user else { return false };
        let (last_rip, last_at, count) = user.last_fault;
        let count = if (last_rip, last_at) == (rip, at.0) { count + 1 } else { 0 };
        user.last_fault = (rip, at.0, count);
        count >= MAX_REPEATS
    }
}

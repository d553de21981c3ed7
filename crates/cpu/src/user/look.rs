//! When the processor looks at what its user code does, to choose how it runs (choice.rs).
//!
//! 1. *At interrupts*, which come to the run loop anyway.
//! 2. *A millisecond after user code is entered* by somebody who should be looked at, for which there is a timer
//!    of the host's that sends the kick signal to the processor's thread (native/signals.rs). It is set when the run
//!    loop enters translated user code and it is not set already, and stays so, whatever runs meanwhile: it costs a
//!    signal and two system calls each millisecond at most, nothing where user code does not run, and nothing where
//!    everybody who runs is known not to compute. The same timer brings a direct thread back that is translated for
//!    the time of a few stops, because it has come to a page that no helper may execute: nothing else would, until
//!    the next interrupt.
//! 3. *At the first jump into a page* that is Rust's anyway (translate/mod.rs): whether it stands for a program
//!    whose threads compute.

use super::FAULT_STOPS;
use super::choice::{LEAST_LOOK, Moment, ThreadKey};
use super::code::{Timer, UserCode};
use super::plan::UserExecution;
use super::programs::CodePage;
use crate::memory::{Linear, Physical};
use crate::time::{cycles, time_stamp};
use crate::vcpu::Vcpu;

/// How long user code runs before it is looked at, in nanoseconds; longer where stops are dear.
const LOOK_AFTER: u64 = 1_000_000;

impl UserCode {
    /// How long it is until the next look, in nanoseconds.
    fn look_after(&self, tsc_khz: u32) -> u64 {
        let least = LEAST_LOOK.saturating_add(LEAST_LOOK / 8).saturating_mul(self.plan.stop);
        LOOK_AFTER.max(nanoseconds(least, tsc_khz))
    }
}

fn nanoseconds(cycles: u64, tsc_khz: u32) -> u64 {
    let nanoseconds = u128::from(cycles) * 1_000_000 / u128::from(tsc_khz.max(1));
    nanoseconds.try_into().unwrap_or(u64::MAX)
}

/// What the calling thread has had of a core.
fn core_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Vcpu {
    fn chooses_ways(&self) -> bool {
        self.user.as_ref().is_some_and(|user| user.plan.execution == UserExecution::Auto)
    }

    /// An interrupt is about to be delivered: if user code was running, it may be of the kind that
    /// should run directly.
    pub(crate) fn consider_direct(&mut self) {
        if !self.chooses_ways() {
            return;
        }
        let key = self.thread_key();
        let in_user_code = self.arch.context.regs.mode().is_user();
        let Some(user) = &mut self.user else { return };
        if !in_user_code || user.choice.is_direct(key) {
            user.choice.forget_look();
        } else {
            self.look_at(key);
        }
    }

    /// The timer has gone off.
    #[cold]
    pub(crate) fn look_by_timer(&mut self) {
        let key = self.thread_key();
        let Some(user) = &mut self.user else { return };
        user.timer.is_set = false;
        user.counters.timer_looks += 1;
        if self.arch.context.regs.mode().is_user() && self.chooses_ways() && !self.is_direct(key) {
            self.look_at(key);
        }
    }

    fn is_direct(&self, key: ThreadKey) -> bool {
        self.user.as_ref().is_some_and(|user| user.choice.is_direct(key))
    }

    /// See what the thread does that has been running.
    fn look_at(&mut self, key: ThreadKey) {
        let (now, core) = (self.moment(), cycles(core_time(), self.arch.config.tsc_khz));
        let Some(mut user) = self.user.take() else { return };
        user.timer.unwatched = None;
        if user.choice.look(key, now, core, || self.current_code_page()) {
            self.arch.context.direct_wanted = 1;
        }
        self.user = Some(user);
    }

    /// Translated user code is about to be entered: it will be looked at, if that is worth it.
    #[inline]
    pub(crate) fn expect_look(&mut self) {
        if self.user.as_ref().is_some_and(|user| !user.timer.is_set) {
            self.set_look_timer();
        }
    }

    fn set_look_timer(&mut self) {
        if !self.chooses_ways() {
            return;
        }
        let key = self.thread_key();
        let Some(user) = &mut self.user else { return };
        if user.timer.unwatched == Some(key) {
            return;
        }
        if !user.choice.wants_look(key) {
            user.timer.unwatched = Some(key);
            return;
        }
        let after = user.look_after(self.arch.config.tsc_khz);
        if let Some(registration) = &self.registration {
            user.timer.is_set = registration.look_after(after);
        }
    }

    /// Come to the run loop again after the time of so many stops.
    pub(super) fn return_after(&mut self, stops: u64) {
        let Some(user) = &mut self.user else { return };
        let after = nanoseconds(stops.saturating_mul(user.plan.stop), self.arch.config.tsc_khz);
        if let Some(registration) = &self.registration {
            user.timer.is_set = registration.look_after(after);
        }
    }

    /// Another thread of the host's runs the processor, and the timer was the other's.
    pub(crate) fn forget_look_timer(&mut self) {
        if let Some(user) = &mut self.user {
            user.timer = Timer::default();
        }
    }

    /// User code comes to a page for the first time in its process, as far as we know. Whether it is direct
    /// from here on.
    #[inline]
    pub(crate) fn begins_directly(&mut self, at: Physical) -> bool {
        let user = self.user.as_ref().filter(|_| self.arch.context.regs.mode().is_user());
        user.is_some_and(|user| user.choice.has_program(at.page().0)) && self.begin_directly(at)
    }

    #[cold]
    fn begin_directly(&mut self, at: Physical) -> bool {
        if !self.may_run_directly() {
            return false;
        }
        let (key, page) = (self.thread_key(), self.code_page_of(at));
        let Some(user) = &mut self.user else { return false };
        let begins = page.is_some_and(|page| user.choice.begin(key, page, time_stamp()));
        if begins {
            self.arch.context.direct_wanted = 1;
        }
        begins
    }

    fn current_code_page(&mut self) -> Option<CodePage> {
        let at = self.walk_for_fetch(Linear(self.arch.context.regs.rip)).ok()?;
        self.code_page_of(at.physical)
    }

    fn code_page_of(&self, at: Physical) -> Option<CodePage> {
        let page = at.page();
        // If somebody writes it meanwhile, the hash is that of other bytes, and the page is not recognized.
        let bytes = self.arch.ram.copy_page(page)?;
        Some(CodePage::new(page.0, &bytes))
    }

    fn moment(&self) -> Moment {
        Moment {
            time: time_stamp(),
            entries: self.arch.context.system_calls + FAULT_STOPS * self.arch.statistics.exceptions,
            lost: self.helped_cycles,
        }
    }

    /// See whether CR3 was loaded.
    #[inline]
    pub(crate) fn heed_switch_of_spaces(&mut self) {
        if self.arch.has_switched_spaces {
            self.switch_spaces();
        }
    }

    fn switch_spaces(&mut self) {
        self.arch.has_switched_spaces = false;
        let now = self.moment();
        if let Some(user) = &mut self.user {
            user.choice.switched(now);
        }
        self.note_direct_wanted();
    }

    /// The processor is about to be idle, which is nobody's computing.
    pub(crate) fn forget_look(&mut self) {
        if let Some(user) = &mut self.user {
            user.choice.forget_look();
        }
    }
}

//! The state of direct execution on one vCPU.

use std::sync::Arc;

use super::choice::{Choice, ThreadKey};
use super::plan::{Plan, UserExecution};
use super::spaces::root_of;
use crate::memory::{Access, Linear};
use crate::statistics::Statistics;
use crate::time::time_stamp;

/// The direct execution of one vCPU.
#[derive(Debug)]
pub(crate) struct UserCode {
    pub(super) plan: Arc<Plan>,
    pub(super) choice: Choice,
    /// Time-stamp counter before which everything is translated.
    pub(super) suspended_until: u64,
    /// The last fault that was served by mapping something, and how often in a row.
    pub(super) last_fault: (u64, u64, u32),
    /// The guest's own page fault that a direct run ended with: once its kernel has mapped the page,
    /// it is mapped in the helper before the program runs again.
    pub(super) own_fault: Option<(ThreadKey, Linear, Access)>,
    pub(super) timer: Timer,
    pub(super) counters: Counters,
}

/// The timer of a vCPU.
#[derive(Debug, Default)]
pub(super) struct Timer {
    pub(super) is_set: bool,
    /// The thread that was last found not to be worth setting it for.
    pub(super) unwatched: Option<ThreadKey>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) runs: u64,
    pub(super) cycles: u64,
    pub(super) entries: u64,
    pub(super) misses: u64,
    pub(super) suspensions: u64,
    pub(super) timer_looks: u64,
}

impl UserCode {
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self {
            choice: Choice::new(plan.stop),
            plan: Arc::clone(plan),
            suspended_until: 0,
            last_fault: (0, 0, 0),
            own_fault: None,
            timer: Timer::default(),
            counters: Counters::default(),
        }
    }

    pub(super) fn is_always(&self) -> bool {
        self.plan.execution == UserExecution::Direct
    }

    pub(super) fn chooses(&self, key: ThreadKey) -> bool {
        if self.is_always() { !self.choice.is_banned(key) } else { self.choice.is_direct(key) }
    }

    /// Whether returns to user code with these page tables have to come to the run loop.
    pub(crate) fn is_wanted(&mut self, cr3: u64) -> bool {
        self.is_always() || self.choice.any_direct(root_of(cr3), time_stamp())
    }

    pub(crate) fn count_in(&self, statistics: &mut Statistics) {
        statistics.direct_runs = self.counters.runs;
        statistics.direct_cycles = self.counters.cycles;
        statistics.direct_entries = self.counters.entries;
        statistics.direct_misses = self.counters.misses;
        statistics.direct_suspensions = self.counters.suspensions;
        statistics.direct_timer_looks = self.counters.timer_looks;
        let choice = &self.choice.counters;
        statistics.direct_looks = choice.looks;
        statistics.direct_promotions = choice.promotions;
        statistics.direct_begun = choice.begun;
        statistics.direct_demotions = choice.demotions;
        statistics.direct_barred = choice.barred;
    }
}

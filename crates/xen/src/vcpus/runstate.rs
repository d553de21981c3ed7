//! How long a vCPU has been in each state (public/vcpu.h, `struct vcpu_runstate_info`).

use serde::{Deserialize, Serialize};
use xen_abi::shared::{RunstateInfo, runstate};

/// What a vCPU is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    /// Its thread has a core, or wants one: which of both is said later ([`Accounts::steal`]).
    Running = runstate::RUNNING as isize,
    /// It waits for an event.
    Blocked = runstate::BLOCKED as isize,
    /// It is down.
    #[default]
    Offline = runstate::OFFLINE as isize,
}

/// The account. Its times add up to the system time of the last change, and none of them ever falls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Accounts {
    state: State,
    since: u64,
    times: [u64; 4],
    /// Of the time that it ran, what the guest has been told of. This and the rest is of one machine: one that goes on
    /// from a snapshot is told of what was stolen since then, and that is at most what it has run since then.
    #[serde(skip)]
    told: u64,
    /// All that was stolen, when that was last said.
    #[serde(skip)]
    stolen: u64,
    /// What of it still counts as time that it ran.
    #[serde(skip)]
    owed: u64,
}

impl Accounts {
    /// Be in another state from now on, a system time.
    pub(crate) fn enter(&mut self, state: State, now: u64) {
        let time = &mut self.times[self.state as usize];
        *time = time.saturating_add(now.saturating_sub(self.since));
        (self.state, self.since) = (state, self.since.max(now));
    }

    /// Until now, its thread has in all wanted a core for so long and had none: it was runnable then. What the guest
    /// has been told of stays, and is made up for by time that comes.
    pub(crate) fn steal(&mut self, total: u64, now: u64) {
        self.enter(self.state, now);
        // Whoever counts begins again when the machine starts.
        self.owed += total.checked_sub(self.stolen).unwrap_or(total);
        self.stolen = total;
        let [running, runnable, ..] = &mut self.times;
        let moved = self.owed.min(running.saturating_sub(self.told));
        *running -= moved;
        *runnable += moved;
        self.owed -= moved;
    }

    /// What the guest is told at a system time.
    pub(crate) fn shown(&mut self, now: u64) -> RunstateInfo {
        self.enter(self.state, now);
        self.told = self.times[State::Running as usize];
        let mut info = RunstateInfo::zeroed();
        (info.state, info.since, info.times) = (self.state as u32, self.since, self.times);
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_was_spent_runnable() {
        let mut accounts = Accounts::default();
        accounts.enter(State::Running, 100);
        accounts.steal(30, 200);
        assert_eq!(accounts.shown(200).times, [70, 30, 0, 100]);
        accounts.enter(State::Blocked, 250);
        accounts.enter(State::Running, 300);
        accounts.steal(40, 310);
        assert_eq!(accounts.shown(310).times, [120, 40, 50, 100]);
    }

    #[test]
    fn what_was_told_does_not_fall() {
        let mut accounts = Accounts::default();
        accounts.enter(State::Running, 0);
        assert_eq!(accounts.shown(100).times, [100, 0, 0, 0]);
        accounts.steal(50, 110);
        assert_eq!(accounts.shown(110).times, [100, 10, 0, 0]);
        accounts.steal(50, 200);
        assert_eq!(accounts.shown(200).times, [150, 50, 0, 0]);
    }

    #[test]
    fn who_counts_may_begin_again() {
        let mut accounts = Accounts::default();
        accounts.enter(State::Running, 0);
        accounts.steal(60, 100);
        accounts.steal(5, 200);
        assert_eq!(accounts.shown(200).times, [135, 65, 0, 0]);
    }
}

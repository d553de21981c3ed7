//! How long a vCPU has been in each state (public/vcpu.h, `struct vcpu_runstate_info`).

use serde::{Deserialize, Serialize};
use xen_abi::shared::{RunstateInfo, runstate};

/// What a vCPU is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    /// Its thread has a core, or wants one: the host does not say which until later.
    Running = runstate::RUNNING as isize,
    /// It waits for an event.
    Blocked = runstate::BLOCKED as isize,
    /// It is down.
    #[default]
    Offline = runstate::OFFLINE as isize,
}

/// The account. Its times add up to the system time of the last change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Accounts {
    state: State,
    since: u64,
    times: [u64; 4],
}

impl Accounts {
    /// Be in another state from now on, a system time.
    pub(crate) fn enter(&mut self, state: State, now: u64) {
        let time = &mut self.times[self.state as usize];
        *time = time.saturating_add(now.saturating_sub(self.since));
        (self.state, self.since) = (state, self.since.max(now));
    }

    /// What the guest is told at a system time.
    pub(crate) fn shown(&mut self, now: u64) -> RunstateInfo {
        self.enter(self.state, now);
        let mut info = RunstateInfo::zeroed();
        (info.state, info.since, info.times) = (self.state as u32, self.since, self.times);
        info
    }
}

//! The processes of a domain, and what they have had of processors, by the host's account.
//!
//! A domain's processes are the one that owns it with those that serve its devices, and the zygote with the helpers
//! that it forks, in which user code runs. Finding them means reading `/proc`, which takes long; so they are found now
//! and then, and the clocks of those that compute are read often (0.2 us each).
//!
//! All are charged. Only those in which code of the guest's runs are stopped if need be, the owner and the zygote's,
//! and only what these use is held against a domain: what serves devices works when others send something.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::limits::{MEMBERS_MAX, MEMBERS_PERIOD, READ_PERIOD};

/// One process.
#[derive(Debug)]
pub(crate) struct Member {
    number: i32,
    descriptor: OwnedFd,
    /// Whether code of the guest's runs in it.
    is_guest: bool,
}

/// The processes of a domain as they are now: those that descend from its owner, and from the zygote.
pub(crate) fn members(owner: i32, zygote: Option<i32>) -> Vec<Member> {
    let mut found = BTreeMap::new();
    let mut open = vec![(owner, false)];
    open.extend(zygote.map(|zygote| (zygote, true)));
    while let Some((number, is_guest)) = open.pop() {
        // Nobody is charged for its keeper.
        let is_ours = number.cast_unsigned() == std::process::id();
        if !is_ours && found.len() < MEMBERS_MAX && !found.contains_key(&number) {
            found.insert(number, is_guest || number == owner);
            open.extend(children(number).into_iter().map(|child| (child, is_guest)));
        }
    }
    found.into_iter().filter_map(|(number, is_guest)| Member::open(number, is_guest)).collect()
}

/// What a process's threads have forked and not waited for (proc(5), `children`).
fn children(process: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| numbers(&list)).collect()
}

fn numbers(list: &str) -> Vec<i32> {
    list.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

impl Member {
    fn open(number: i32, is_guest: bool) -> Option<Self> {
        let descriptor = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
        Some(Self { number, descriptor, is_guest })
    }
}

/// A process whose clock is read.
#[derive(Debug)]
struct Metered {
    member: Member,
    before: Duration,
    /// What it used before it was found may be old.
    is_new: bool,
    /// It has computed when all clocks were read last.
    computes: bool,
}

/// What was used since the last time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// By all processes.
    pub(crate) all: Duration,
    /// By those in which code of the guest's runs, without what is charged late.
    pub(crate) guest: Duration,
}

/// What a domain has used.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    members: BTreeMap<i32, Metered>,
    /// When they were found last.
    found: Option<Instant>,
    /// When all clocks are read again.
    read_all: Option<Instant>,
    /// All that was charged.
    pub(crate) total: Duration,
}

impl Meter {
    /// These are its processes now. What one that is new has used counts, unless nobody has looked for a while.
    pub(crate) fn set_members(&mut self, members: Vec<Member>) {
        let is_fresh = self.found.is_some_and(|found| found.elapsed() < 3 * MEMBERS_PERIOD);
        let mut kept = BTreeMap::new();
        for member in members {
            let number = member.number;
            let first = || match is_fresh {
                true => Duration::ZERO,
                false => host::process_time(number).unwrap_or_default(),
            };
            let known = self.members.remove(&number);
            let new = || Metered { member, before: first(), is_new: true, computes: true };
            kept.insert(number, known.unwrap_or_else(new));
        }
        (self.members, self.found) = (kept, Some(Instant::now()));
    }

    /// What has been used since the last time. Unless it may have run since then, those that did not compute when all
    /// clocks were read are left for later.
    pub(crate) fn read(&mut self, may_have_run: bool) -> Used {
        let now = Instant::now();
        let all = may_have_run || self.read_all.is_none_or(|due| due <= now);
        if all {
            self.read_all = Some(now + READ_PERIOD);
        }
        let mut used = Used::default();
        for (&number, metered) in self.members.iter_mut().filter(|it| all || it.1.computes) {
            // One that has ended has no clock; its number may have one again, which is behind.
            if let Some(now) = host::process_time(number) {
                let more = now.saturating_sub(metered.before);
                metered.computes = if all { !more.is_zero() } else { true };
                used.all += more;
                if metered.member.is_guest && !metered.is_new {
                    used.guest += more;
                }
                (metered.before, metered.is_new) = (now, false);
            }
        }
        self.total += used.all;
        used
    }

    /// Stop those in which code of the guest's runs, or let them go on.
    pub(crate) fn stop(&self, is_stopped: bool) {
        let signal = if is_stopped { Signal::STOP } else { Signal::CONT };
        let guest = self.members.values().filter(|metered| metered.member.is_guest);
        for Metered { member, .. } in guest {
            // One that has ended does nothing any more.
            let _ = pidfd_send_signal(&member.descriptor, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_descends_from_a_process_is_found_and_stopped() {
        let script = "sh -c 'while :; do :; done' & wait";
        let mut child = std::process::Command::new("sh")
            .args(["-c", script])
            .spawn()
            .expect("there is a shell");
        let owner = child.id().cast_signed();
        let mut found = Vec::new();
        for _ in 0..500 {
            found = members(owner, None);
            if found.len() == 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(found.len(), 2, "{found:?}");
        // The one that computes is no owner, as what serves devices.
        let computing = found.iter().position(|member| !member.is_guest).expect("a child");
        let mut meter = Meter::default();
        meter.set_members(found);
        let span = Duration::from_millis(100);
        let mut used = Used::default();
        while used.all.is_zero() {
            std::thread::sleep(span);
            used = meter.read(false);
        }
        assert_eq!(used.guest, Duration::ZERO);
        // One that has not computed lately is left for later, unless it may have run.
        meter.members.values_mut().for_each(|metered| metered.computes = false);
        meter.read_all = Some(Instant::now() + Duration::from_secs(600));
        std::thread::sleep(span);
        assert_eq!(meter.read(false).all, Duration::ZERO);
        assert!(meter.read(true).all > Duration::ZERO);
        // If code of the guest's ran in it, it could be stopped.
        let metered = meter.members.values_mut().nth(computing).expect("it was found");
        metered.member.is_guest = true;
        meter.stop(true);
        std::thread::sleep(span);
        meter.read(false);
        std::thread::sleep(span);
        assert_eq!(meter.read(false).all, Duration::ZERO);
        // What is killed need not go on first.
        for Metered { member, .. } in meter.members.values() {
            pidfd_send_signal(&member.descriptor, Signal::KILL).expect("it lives");
        }
        child.wait().expect("it was ours");
    }

    #[test]
    fn a_list_may_be_empty() {
        assert_eq!(numbers("12 7 \n"), [12, 7]);
        assert!(numbers("").is_empty());
        assert!(children(i32::MAX).is_empty());
    }
}

//! What domains get, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use scheduler::limits::{QUANTUM, WARP_MAX};
use scheduler::simulator::{Domain, Load, Outcome, simulate};
use scheduler::{Bvt, Cap, DomainId, Permit, Policy, Scheduler, VcpuId, Weight};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn busy(weight: u32, vcpus: usize) -> Domain {
    let policy = Policy { weight: Weight::new(weight).unwrap(), ..Policy::default() };
    Domain { policy, vcpus, load: Load::Busy }
}

fn capped(percent: u32, domain: Domain) -> Domain {
    Domain { policy: Policy { cap: Cap::new(percent), ..domain.policy }, ..domain }
}

fn run(processors: usize, domains: &[Domain], length: Duration) -> Vec<Outcome> {
    simulate(&mut Bvt::new(processors), domains, length)
}

/// Shares of one processor, in percent, after 20 seconds.
fn shares(processors: usize, domains: &[Domain]) -> Vec<f64> {
    let outcomes = run(processors, domains, 20 * SECOND);
    outcomes.iter().map(|outcome| outcome.used.as_secs_f64() * 5.0).collect()
}

#[track_caller]
fn check(processors: usize, domains: &[Domain], expected: &[f64]) {
    let shares = shares(processors, domains);
    let near = shares.iter().zip(expected).all(|(share, expected)| (share - expected).abs() < 1.0);
    assert!(near, "{shares:?} instead of {expected:?}");
}

#[test]
fn shares_are_in_proportion_to_weights() {
    check(1, &[busy(256, 1), busy(256, 1)], &[50.0, 50.0]);
    check(1, &[busy(1, 1), busy(3, 1)], &[25.0, 75.0]);
    let four = [busy(256, 1), busy(512, 1), busy(768, 1), busy(1024, 1)];
    check(2, &four, &[20.0, 40.0, 60.0, 80.0]);
    // However many vCPUs share it.
    check(2, &[busy(256, 4), busy(768, 2)], &[50.0, 150.0]);
    check(4, &[busy(256, 4), busy(256, 2), busy(256, 3)], &[133.3, 133.3, 133.3]);
}

/// One that spins may wait for another of its domain.
#[test]
fn vcpus_of_a_domain_take_turns() {
    let check = |processors: usize, domains: &[Domain], most: Duration| {
        for outcome in run(processors, domains, 10 * SECOND) {
            assert!(outcome.longest_wait <= most, "{domains:?}: {:?}", outcome.longest_wait);
        }
    };
    check(2, &[busy(256, 4)], 2 * QUANTUM);
    check(2, &[busy(256, 16)], 8 * QUANTUM);
    check(1, &[busy(256, 3)], 3 * QUANTUM);
    check(2, &[busy(256, 4), busy(256, 1)], 8 * QUANTUM);
    check(2, &[busy(256, 4), busy(256, 4)], 8 * QUANTUM);
}

/// A host on which something else has half of each processor, and what domains use is known late.
struct Unkind {
    scheduler: Bvt,
    owed: BTreeMap<DomainId, Duration>,
    delivered: Duration,
}

impl Scheduler for Unkind {
    fn add(&mut self, domain: DomainId, vcpus: usize, policy: Policy) {
        self.scheduler.add(domain, vcpus, policy);
    }
    fn remove(&mut self, domain: DomainId) {
        self.scheduler.remove(domain);
    }
    fn set_policy(&mut self, domain: DomainId, policy: Policy) {
        self.scheduler.set_policy(domain, policy);
    }
    fn wake(&mut self, vcpu: VcpuId, now: Duration) {
        self.scheduler.wake(vcpu, now);
    }
    fn block(&mut self, vcpu: VcpuId, now: Duration) {
        self.scheduler.block(vcpu, now);
    }
    fn charge(&mut self, domain: DomainId, used: Duration, now: Duration) {
        *self.owed.entry(domain).or_default() += used / 2;
        if now >= self.delivered + 100 * MS {
            self.delivered = now;
            for (domain, used) in std::mem::take(&mut self.owed) {
                self.scheduler.charge(domain, used, now);
            }
        }
    }
    fn plan(&mut self, now: Duration) -> Option<Duration> {
        self.scheduler.plan(now)
    }
    fn permit(&self, vcpu: VcpuId) -> Permit {
        self.scheduler.permit(vcpu)
    }
    fn is_busy(&self) -> bool {
        self.scheduler.is_busy()
    }
    fn limits(&self, domain: DomainId) -> bool {
        self.scheduler.limits(domain)
    }
    fn age(&self, domain: DomainId) -> Option<i64> {
        self.scheduler.age(domain)
    }
    fn is_ahead(&self, domain: DomainId) -> bool {
        self.scheduler.is_ahead(domain)
    }
}

#[test]
fn late_charges_change_no_shares() {
    let four = [busy(128, 1), busy(256, 1), busy(384, 1), busy(512, 1)];
    let (owed, delivered) = (BTreeMap::new(), Duration::ZERO);
    let mut unkind = Unkind { scheduler: Bvt::new(2), owed, delivered };
    let outcomes = simulate(&mut unkind, &four, 20 * SECOND);
    let shares: Vec<f64> = outcomes.iter().map(|it| it.used.as_secs_f64() * 5.0).collect();
    let expected = [20.0, 40.0, 60.0, 80.0];
    let near = shares.iter().zip(expected).all(|(share, expected)| (share - expected).abs() < 1.0);
    assert!(near, "{shares:?} instead of {expected:?}");
}

#[test]
fn what_one_cannot_use_the_others_share() {
    check(2, &[busy(10_000, 1), busy(256, 1), busy(256, 1)], &[100.0, 50.0, 50.0]);
    check(2, &[busy(10_000, 1), busy(256, 1), busy(768, 1)], &[100.0, 25.0, 75.0]);
    check(2, &[busy(256, 2)], &[200.0]);
}

#[test]
fn caps_hold_whether_or_not_there_is_room() {
    check(2, &[capped(25, busy(256, 1))], &[25.0]);
    check(2, &[capped(150, busy(256, 2))], &[150.0]);
    check(1, &[capped(25, busy(256, 1)), busy(256, 1)], &[25.0, 75.0]);
    check(2, &[capped(30, busy(9999, 2)), busy(256, 2), busy(256, 2)], &[30.0, 85.0, 85.0]);
}

#[test]
fn who_sleeps_saves_nothing_up() {
    let sleepy =
        Domain { load: Load::Bursts { computes: 400 * MS, sleeps: 5 * SECOND }, ..busy(256, 1) };
    let outcomes = run(1, &[sleepy, busy(256, 1), busy(256, 1)], 60 * SECOND);
    assert!(outcomes[2].longest_wait < 12 * QUANTUM, "{outcomes:?}");
    assert!(outcomes[1].longest_wait < 12 * QUANTUM, "{outcomes:?}");
}

#[test]
fn a_warped_domain_is_served_at_once_at_the_same_price() {
    let quick = |warp| Domain {
        policy: Policy { warp, ..Policy::default() },
        load: Load::Bursts { computes: MS / 5, sleeps: 20 * MS },
        vcpus: 1,
    };
    let hogs = [busy(256, 1); 4];
    let wait = |warp| {
        let outcomes = run(1, &[&[quick(warp)][..], &hogs].concat(), 20 * SECOND);
        (outcomes[0].longest_wait, outcomes[0].used)
    };
    let (with, _) = wait(50 * MS);
    assert!(with <= MS, "{with:?}");
    // What a domain computes that never sleeps, warp does not change.
    let warped = Domain { policy: Policy { warp: SECOND, ..Policy::default() }, ..busy(256, 1) };
    check(1, &[warped, busy(256, 1)], &[50.0, 50.0]);
    // And one that only pretends to be quick gets no more than its share, but for what it borrows.
    let sly = Domain { load: Load::Bursts { computes: 2 * WARP_MAX, sleeps: MS }, ..warped };
    let outcomes = run(1, &[sly, busy(256, 1)], 20 * SECOND);
    assert!(outcomes[0].used < 11 * SECOND, "{outcomes:?}");
}

fn any_domain() -> impl Strategy<Value = Domain> {
    (1_u32..5000, 1_usize..4).prop_map(|(weight, vcpus)| busy(weight, vcpus))
}

/// What each would get of so many processors if time could be divided at will: in proportion to weights, and nobody
/// more than its vCPUs can use.
fn divided(processors: usize, domains: &[Domain]) -> Vec<f64> {
    let mut shares = vec![None; domains.len()];
    loop {
        let fixed: f64 = shares.iter().flatten().sum();
        let free = processors as f64 - fixed;
        let open = || (0..domains.len()).filter(|&number| shares[number].is_none());
        let weight = |number: usize| f64::from(domains[number].policy.weight.get());
        let all: f64 = open().map(weight).sum();
        let share = |number| free * weight(number) / all;
        let full = open().find(|&number| share(number) > domains[number].vcpus as f64);
        match full {
            Some(number) => shares[number] = Some(domains[number].vcpus as f64),
            None => {
                let rest = (0..domains.len()).map(|n| shares[n].unwrap_or_else(|| share(n)));
                return rest.collect();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn shares_are_those_of_time_that_can_be_divided(
        processors in 1_usize..5,
        domains in prop::collection::vec(any_domain(), 1..7),
    ) {
        let length = 30 * SECOND;
        let expected = divided(processors, &domains);
        let found = run(processors, &domains, length);
        for (found, expected) in found.iter().zip(&expected) {
            let share = found.used.as_secs_f64() / length.as_secs_f64();
            let near = (share - expected).abs() <= 0.02 * expected + 0.01;
            prop_assert!(near, "{found:?}: {share} instead of {expected}");
        }
    }

    #[test]
    fn no_processor_idles_while_somebody_waits(
        processors in 1_usize..4,
        bursts in prop::collection::vec((1_u64..30, 1_u64..30), 1..6),
    ) {
        let domains: Vec<Domain> = bursts.iter().map(|&(computes, sleeps)| Domain {
            load: Load::Bursts { computes: computes as u32 * MS, sleeps: sleeps as u32 * MS },
            ..busy(256, 1)
        }).chain((0..processors).map(|_| busy(256, 1))).collect();
        let length = 5 * SECOND;
        let used: Duration = run(processors, &domains, length).iter().map(|it| it.used).sum();
        let all = length.as_secs_f64() * processors as f64;
        prop_assert!(used.as_secs_f64() > 0.999 * all, "{used:?} of {all}");
    }

    #[test]
    fn caps_are_never_exceeded(
        processors in 1_usize..4,
        caps in prop::collection::vec((1_u32..150, 1_usize..3), 1..6),
    ) {
        let domains: Vec<Domain> =
            caps.iter().map(|&(cap, vcpus)| capped(cap, busy(256, vcpus))).collect();
        let length = 10 * SECOND;
        for (outcome, (cap, _)) in run(processors, &domains, length).iter().zip(&caps) {
            let share = outcome.used.as_secs_f64() / length.as_secs_f64() * 100.0;
            prop_assert!(share <= f64::from(*cap) * 1.02 + 0.5, "{share} of {cap}");
        }
    }
}

//! The scheduler: seats, one for each of the host's processors, and who sits on them.
//!
//! A seat has an occupant, and shortly before that one's quantum ends also the next one. A vCPU has one seat at most.
//!
//! ```text
//!   seat 0   | a: quantum          | b: quantum ...
//!   now            ^ decide  -----> (MARGIN before the end)
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use crate::account::Account;
use crate::budget::Budget;
use crate::limits::{LINGER, MARGIN, QUANTUM, SLICE_MIN, SWITCH_ALLOWANCE, VCPUS_MAX};
use crate::policy::Policy;
use crate::{DomainId, Permit, Scheduler, VcpuId};

/// See above.
#[derive(Debug)]
pub struct Bvt {
    seats: Vec<Seat>,
    domains: BTreeMap<DomainId, Domain>,
    /// The age of the youngest domain that wants to run, which never falls.
    virtual_time: i64,
    /// Until then, permits are limited.
    busy_until: Duration,
    now: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seat {
    current: Option<Turn>,
    next: Option<Turn>,
}

/// A vCPU's time on a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    vcpu: VcpuId,
    from: Duration,
    until: Duration,
}

#[derive(Debug)]
struct Domain {
    policy: Policy,
    account: Account,
    budget: Option<Budget>,
    vcpus: Vec<Vcpu>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Vcpu {
    is_runnable: bool,
    /// Where it sat last: its data may still be in that processor's caches.
    last_seat: Option<usize>,
    /// When its last turn began, or it has woken up since.
    waits_since: Duration,
}

impl Domain {
    fn runnable(&self) -> impl Iterator<Item = usize> {
        self.vcpus.iter().enumerate().filter(|(_, vcpu)| vcpu.is_runnable).map(|(number, _)| number)
    }

    fn is_asleep(&self) -> bool {
        self.runnable().next().is_none()
    }

    /// Whether its vCPUs may run at all.
    fn may_run(&self) -> bool {
        self.budget.is_none_or(|budget| budget.slice(1).is_some())
    }

    /// For how long one of so many vCPUs may run.
    fn slice(&self, vcpus: u32) -> Duration {
        let slice = self.budget.map(|budget| budget.slice(vcpus).unwrap_or(SLICE_MIN));
        slice.map_or(QUANTUM, |slice| slice.min(QUANTUM))
    }
}

impl Bvt {
    /// Of a host with so many processors.
    #[must_use]
    pub fn new(processors: usize) -> Self {
        Self {
            seats: vec![Seat::default(); processors.max(1)],
            domains: BTreeMap::new(),
            virtual_time: 0,
            busy_until: Duration::ZERO,
            now: Duration::ZERO,
        }
    }

    fn turns(&self) -> impl Iterator<Item = &Turn> {
        self.seats.iter().flat_map(|seat| seat.current.iter().chain(&seat.next))
    }

    fn is_seated(&self, vcpu: VcpuId) -> bool {
        self.turns().any(|turn| turn.vcpu == vcpu)
    }

    fn is_runnable(&self, vcpu: VcpuId) -> bool {
        let domain = self.domains.get(&vcpu.domain).filter(|domain| domain.may_run());
        domain.and_then(|domain| domain.vcpus.get(vcpu.number)).is_some_and(|vcpu| vcpu.is_runnable)
    }

    /// E of a domain, when what its vCPUs have been given is used.
    fn projected(&self, id: DomainId, domain: &Domain) -> i64 {
        let promised = self.turns().filter(|turn| turn.vcpu.domain == id);
        let promised = promised.map(|turn| turn.until.saturating_sub(self.now.max(turn.from)));
        let promised = domain.policy.weight.virtual_time(promised.sum());
        domain.account.effective(&domain.policy).saturating_add(promised)
    }

    /// The vCPUs that want to run and may, and have no turn.
    fn waiting(&self) -> impl Iterator<Item = VcpuId> {
        let domains = self.domains.iter().filter(|(_, domain)| domain.may_run());
        let all = domains.flat_map(|(&domain, found)| {
            found.runnable().map(move |number| VcpuId { domain, number })
        });
        all.filter(|vcpu| !self.is_seated(*vcpu))
    }

    /// Let time pass for budgets and seats: whose turn is over goes, and so does who does not want it.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        for domain in self.domains.values_mut() {
            domain.budget.iter_mut().for_each(|budget| budget.advance(now));
        }
        for number in 0..self.seats.len() {
            let Seat { current, next } = self.seats[number];
            let stays = |turn: &Turn| turn.until > now && self.is_runnable(turn.vcpu);
            let (current, next) = (current.filter(stays), next.filter(stays));
            // Who comes next need not wait for one that has gone.
            let early = |turn: Turn| Turn { from: turn.from.min(now), ..turn };
            self.seats[number] = match current {
                Some(_) => Seat { current, next },
                None => Seat { current: next.map(early), next: None },
            };
        }
    }

    /// Nobody is owed what nobody withheld: who does not wait is behind those who do, or if nobody waits behind the
    /// others, by a limited time only.
    fn limit_lags(&mut self, waiting: &[DomainId]) {
        let awake = self.domains.iter().filter(|(_, domain)| !domain.is_asleep());
        let ages = awake.map(|(id, domain)| (waiting.contains(id), domain.account.actual));
        let ages: Vec<(bool, i64)> = ages.collect();
        let youngest = ages.iter().filter(|(waits, _)| *waits).map(|(_, age)| *age).min();
        let oldest = ages.iter().map(|(_, age)| *age).max();
        let Some(behind) = youngest.or(oldest) else { return };
        // A light domain gets older by much in one quantum, and the others are rightly behind it then.
        let awake = self.domains.values().filter(|domain| !domain.is_asleep());
        let steps = awake.map(|domain| domain.policy.weight.virtual_time(QUANTUM));
        let step = steps.max().unwrap_or(0);
        for (id, domain) in &mut self.domains {
            if !domain.is_asleep() && !waiting.contains(id) {
                domain.account.limit_lag(behind, step, &domain.policy);
            }
        }
        let awake = self.domains.values().filter(|domain| !domain.is_asleep());
        let youngest = awake.map(|domain| domain.account.actual).min();
        self.virtual_time = self.virtual_time.max(youngest.unwrap_or(self.virtual_time));
    }

    /// Take seats from those that are older than somebody who waits, by more than a switch is worth.
    fn preempt(&mut self) {
        let mut waiting: Vec<i64> = self
            .waiting()
            .map(|vcpu| {
                let domain = &self.domains[&vcpu.domain];
                domain.account.effective(&domain.policy)
            })
            .collect();
        waiting.sort_unstable();
        for age in waiting {
            let free = self.seats.iter().filter(|seat| seat.current.is_none()).count();
            if free > 0 {
                return;
            }
            let (now, domains) = (self.now, &self.domains);
            let excess = |seat: &Seat| {
                let turn = seat.current.filter(|turn| turn.until > now + MARGIN)?;
                let domain = domains.get(&turn.vcpu.domain)?;
                let allowance = domain.policy.weight.virtual_time(SWITCH_ALLOWANCE);
                Some(domain.account.effective(&domain.policy) - age - allowance)
            };
            let seats = self.seats.iter_mut();
            let worst = seats.filter_map(|seat| Some((excess(seat)?, seat))).max_by_key(|it| it.0);
            match worst {
                Some((excess, seat)) if excess > 0 => *seat = Seat::default(),
                _ => return,
            }
        }
    }

    /// Give a seat that is free, or about to be, to the youngest.
    fn fill(&mut self, number: usize) {
        let Seat { current, .. } = self.seats[number];
        let from = current.map_or(self.now, |turn| turn.until);
        let occupant = current.map(|turn| turn.vcpu);
        let key = |vcpu: VcpuId| {
            let domain = &self.domains[&vcpu.domain];
            let state = &domain.vcpus[vcpu.number];
            // Of those that are as old, as all vCPUs of a domain are, who has waited longest: one that computes must
            // not keep the seat from another that it may be waiting for. Then who sits there, who knows the place.
            let is_new = occupant != Some(vcpu);
            let is_strange = state.last_seat != Some(number);
            (self.projected(vcpu.domain, domain), state.waits_since, is_new, is_strange, vcpu)
        };
        let candidates = self.waiting().chain(occupant);
        let Some(vcpu) = candidates.min_by_key(|vcpu| key(*vcpu)) else { return };
        let seated = self.turns().filter(|turn| turn.vcpu.domain == vcpu.domain).count();
        let Some(domain) = self.domains.get_mut(&vcpu.domain) else { return };
        let slice = domain.slice(1 + u32::try_from(seated).unwrap_or(u32::MAX - 1));
        let state = &mut domain.vcpus[vcpu.number];
        (state.last_seat, state.waits_since) = (Some(number), from);
        let seat = &mut self.seats[number];
        match &mut seat.current {
            Some(turn) if turn.vcpu == vcpu => turn.until += slice,
            Some(_) => seat.next = Some(Turn { vcpu, from, until: from + slice }),
            None => seat.current = Some(Turn { vcpu, from, until: from + slice }),
        }
    }

    /// When to look again as long as permits are limited.
    fn next_look(&self) -> Duration {
        let ends = self.seats.iter().filter_map(|seat| seat.next.or(seat.current));
        let ends = ends.map(|turn| turn.until.saturating_sub(MARGIN));
        let next = ends.chain([self.now + QUANTUM]).min().unwrap_or(self.now);
        next.max(self.now + SLICE_MIN / 2)
    }

    /// When a domain that has used its budget up may run again, or one that has some left is to be looked at.
    fn next_refill(&self) -> Option<Duration> {
        let capped = self.domains.values().filter(|domain| !domain.is_asleep());
        let times = capped.filter_map(|domain| {
            let budget = domain.budget?;
            let vcpus = u32::try_from(domain.runnable().count()).unwrap_or(u32::MAX);
            Some(match budget.slice(vcpus) {
                None => budget.refill(),
                Some(slice) => budget.refill().min(self.now + slice.min(QUANTUM)),
            })
        });
        times.min()
    }
}

impl Scheduler for Bvt {
    fn add(&mut self, domain: DomainId, vcpus: usize, policy: Policy) {
        let vcpus = vec![Vcpu::default(); vcpus.min(VCPUS_MAX)];
        let account = Account::new(self.virtual_time);
        let budget = policy.cap.map(Budget::new);
        self.domains.insert(domain, Domain { policy, account, budget, vcpus });
    }

    fn remove(&mut self, domain: DomainId) {
        self.domains.remove(&domain);
        for seat in &mut self.seats {
            seat.current = seat.current.filter(|turn| turn.vcpu.domain != domain);
            seat.next = seat.next.filter(|turn| turn.vcpu.domain != domain);
        }
    }

    fn set_policy(&mut self, domain: DomainId, policy: Policy) {
        let Some(domain) = self.domains.get_mut(&domain) else { return };
        domain.policy = policy;
        domain.budget = policy.cap.map(|cap| match domain.budget.take() {
            None => Budget::new(cap),
            Some(mut budget) => {
                budget.set_cap(cap);
                budget
            }
        });
    }

    fn wake(&mut self, vcpu: VcpuId, now: Duration) {
        let virtual_time = self.virtual_time;
        let Some(domain) = self.domains.get_mut(&vcpu.domain) else { return };
        let was_asleep = domain.is_asleep();
        let Some(state) = domain.vcpus.get_mut(vcpu.number) else { return };
        if std::mem::replace(&mut state.is_runnable, true) {
            return;
        }
        state.waits_since = now;
        if was_asleep {
            domain.account.wake(virtual_time, &domain.policy, now);
        }
    }

    fn block(&mut self, vcpu: VcpuId, _: Duration) {
        let Some(domain) = self.domains.get_mut(&vcpu.domain) else { return };
        let Some(state) = domain.vcpus.get_mut(vcpu.number) else { return };
        state.is_runnable = false;
        if domain.is_asleep() {
            domain.account.sleep();
        }
    }

    fn charge(&mut self, domain: DomainId, used: Duration, now: Duration) {
        let Some(domain) = self.domains.get_mut(&domain) else { return };
        domain.account.charge(used, &domain.policy, now);
        domain.budget.iter_mut().for_each(|budget| budget.charge(used));
    }

    fn plan(&mut self, now: Duration) -> Option<Duration> {
        self.advance(now);
        let wanted: usize = self
            .domains
            .values()
            .filter(|domain| domain.may_run())
            .map(|domain| domain.runnable().count())
            .sum();
        if wanted > self.seats.len() {
            if !self.is_busy() {
                // Nobody has been denied anything until now.
                self.limit_lags(&[]);
            }
            self.busy_until = self.now + LINGER;
        }
        if !self.is_busy() {
            self.seats.fill(Seat::default());
            self.limit_lags(&[]);
            return self.next_refill();
        }
        let waiting: Vec<DomainId> = self.waiting().map(|vcpu| vcpu.domain).collect();
        self.limit_lags(&waiting);
        self.preempt();
        let mut seats: Vec<usize> = (0..self.seats.len()).collect();
        let end = |seat: &Seat| seat.current.map_or(Duration::ZERO, |turn| turn.until);
        seats.sort_by_key(|number| end(&self.seats[*number]));
        for number in seats {
            let Seat { current, next } = self.seats[number];
            let is_ending = current.is_none_or(|turn| turn.until <= self.now + MARGIN);
            if is_ending && next.is_none() {
                self.fill(number);
            }
        }
        let look = self.next_look();
        Some(self.next_refill().map_or(look, |refill| refill.max(self.now).min(look)))
    }

    fn permit(&self, vcpu: VcpuId) -> Permit {
        let Some(domain) = self.domains.get(&vcpu.domain) else { return Permit::Unlimited };
        if self.is_busy() {
            let turn = self.turns().find(|turn| turn.vcpu == vcpu);
            return turn
                .map_or(Permit::No, |&Turn { from, until, .. }| Permit::Span { from, until });
        }
        let vcpus = u32::try_from(domain.runnable().count()).unwrap_or(u32::MAX);
        match domain.budget.map(|budget| budget.slice(vcpus)) {
            None => Permit::Unlimited,
            Some(None) => Permit::No,
            Some(Some(slice)) => Permit::Span { from: self.now, until: self.now + slice },
        }
    }

    fn is_busy(&self) -> bool {
        self.now < self.busy_until
    }

    fn limits(&self, domain: DomainId) -> bool {
        self.is_busy() || self.domains.get(&domain).is_some_and(|domain| domain.budget.is_some())
    }

    fn age(&self, domain: DomainId) -> Option<i64> {
        self.domains.get(&domain).map(|domain| domain.account.actual)
    }

    fn is_ahead(&self, domain: DomainId) -> bool {
        let Some(found) = self.domains.get(&domain) else { return false };
        let others = self.domains.iter().filter(|(id, other)| **id != domain && !other.is_asleep());
        let youngest = others.map(|(_, other)| other.account.actual).min();
        !found.may_run() || youngest.is_some_and(|youngest| youngest < found.account.actual)
    }
}

//! Domains and processors that exist in virtual time only, to see what a scheduler does with them.
//!
//! The host's processors are perfect: a vCPU with a permit runs, and one without does not. Time goes from one event to
//! the next: a decision, the beginning or end of a permit, a vCPU that wakes up or has nothing more to do.

use std::time::Duration;

use crate::{DomainId, Permit, Policy, Scheduler, VcpuId};

/// What a vCPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// It computes, always.
    Busy,
    /// It computes for so long, and then sleeps for so long.
    Bursts {
        /// Of its own time.
        computes: Duration,
        /// Of real time.
        sleeps: Duration,
    },
}

/// A domain, all of whose vCPUs do the same.
#[derive(Debug, Clone, Copy)]
pub struct Domain {
    /// What it is worth.
    pub policy: Policy,
    /// How many vCPUs it has.
    pub vcpus: usize,
    /// What they do.
    pub load: Load,
}

/// What became of a domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What its vCPUs have computed.
    pub used: Duration,
    /// The longest that one has wanted to run and did not.
    pub longest_wait: Duration,
}

struct Vcpu {
    id: VcpuId,
    load: Load,
    /// What is left of a burst.
    burst: Duration,
    /// When it wakes up, if it sleeps.
    wakes: Option<Duration>,
    waits_since: Duration,
}

impl Vcpu {
    /// When it may run next, from now on, and until when: none for ever.
    fn span(permit: Permit, now: Duration) -> Option<(Duration, Duration)> {
        match permit {
            Permit::No => None,
            Permit::Unlimited => Some((now, Duration::MAX)),
            Permit::Span { from, until } => (until > now).then(|| (from.max(now), until)),
        }
    }

    /// What happens to it next if nobody decides anything.
    fn next_event(&self, permit: Permit, now: Duration) -> Option<Duration> {
        if let Some(wakes) = self.wakes {
            return Some(wakes);
        }
        let (from, until) = Self::span(permit, now)?;
        let event = if from > now { from } else { until.min(now.saturating_add(self.burst)) };
        (event != Duration::MAX).then_some(event)
    }
}

/// Run domains for so long on a scheduler that has none yet; what became of each.
pub fn simulate(
    scheduler: &mut impl Scheduler,
    domains: &[Domain],
    length: Duration,
) -> Vec<Outcome> {
    let mut vcpus = Vec::new();
    for (number, domain) in domains.iter().enumerate() {
        let id = DomainId(u32::try_from(number).unwrap_or(u32::MAX));
        scheduler.add(id, domain.vcpus, domain.policy);
        for number in 0..domain.vcpus {
            let id = VcpuId { domain: id, number };
            let burst = match domain.load {
                Load::Busy => Duration::MAX,
                Load::Bursts { computes, .. } => computes,
            };
            let waits_since = Duration::ZERO;
            vcpus.push(Vcpu { id, load: domain.load, burst, wakes: None, waits_since });
            scheduler.wake(id, Duration::ZERO);
        }
    }
    let mut outcomes = vec![Outcome::default(); domains.len()];
    let mut now = Duration::ZERO;
    while now < length {
        let look = scheduler.plan(now);
        let events = vcpus.iter().filter_map(|it| it.next_event(scheduler.permit(it.id), now));
        let next = events.chain(look).min().unwrap_or(length).min(length);
        let next = next.max(now + Duration::from_nanos(1));
        let mut used = vec![Duration::ZERO; domains.len()];
        for vcpu in &mut vcpus {
            run(scheduler, vcpu, now..next, &mut used, &mut outcomes);
        }
        for (number, used) in used.into_iter().enumerate() {
            outcomes[number].used += used;
            scheduler.charge(DomainId(u32::try_from(number).unwrap_or(u32::MAX)), used, next);
        }
        now = next;
    }
    outcomes
}

/// What a vCPU does in a span of time without events.
fn run(
    scheduler: &mut impl Scheduler,
    vcpu: &mut Vcpu,
    span: std::ops::Range<Duration>,
    used: &mut [Duration],
    outcomes: &mut [Outcome],
) {
    let (now, next) = (span.start, span.end);
    let domain = vcpu.id.domain.0 as usize;
    if let Some(wakes) = vcpu.wakes {
        if wakes <= next {
            vcpu.wakes = None;
            vcpu.waits_since = next;
            scheduler.wake(vcpu.id, next);
        }
        return;
    }
    let may_run = Vcpu::span(scheduler.permit(vcpu.id), now);
    let Some((_, until)) = may_run.filter(|(from, _)| *from <= now) else {
        let waited = next - vcpu.waits_since;
        outcomes[domain].longest_wait = outcomes[domain].longest_wait.max(waited);
        return;
    };
    let ran = until.min(next) - now;
    used[domain] += ran;
    vcpu.waits_since = next;
    vcpu.burst = vcpu.burst.saturating_sub(ran);
    if vcpu.burst.is_zero()
        && let Load::Bursts { computes, sleeps } = vcpu.load
    {
        vcpu.burst = computes;
        vcpu.wakes = Some(next + sleeps);
        scheduler.block(vcpu.id, next);
    }
}

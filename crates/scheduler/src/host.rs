//! The scheduler that leaves everything to the host's: what domains get without a keeper, to compare with.

use std::time::Duration;

use crate::{DomainId, Permit, Policy, Scheduler, VcpuId};

/// See above. Weights, caps and warps mean nothing to it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Scheduler for Host {
    fn add(&mut self, _: DomainId, _: usize, _: Policy) {}
    fn remove(&mut self, _: DomainId) {}
    fn set_policy(&mut self, _: DomainId, _: Policy) {}
    fn wake(&mut self, _: VcpuId, _: Duration) {}
    fn block(&mut self, _: VcpuId, _: Duration) {}
    fn charge(&mut self, _: DomainId, _: Duration, _: Duration) {}

    fn plan(&mut self, _: Duration) -> Option<Duration> {
        None
    }

    fn permit(&self, _: VcpuId) -> Permit {
        Permit::Unlimited
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn limits(&self, _: DomainId) -> bool {
        false
    }

    fn age(&self, _: DomainId) -> Option<i64> {
        None
    }

    fn is_ahead(&self, _: DomainId) -> bool {
        false
    }
}

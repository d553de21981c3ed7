//! Which vCPUs run when domains want more processors than the host has: Borrowed Virtual Time (Duda and Cheriton,
//! SOSP'99), as Xen had it in 2003, for hosts and domains with several processors, with caps.
//!
//! It is arithmetic. There is no thread, no clock and no process here: who uses it says what time it is, which vCPUs
//! want to run and what was used, and carries out the permits that it is told. So the same code runs in virtual time
//! ([`simulator`]).
//!
//! # Virtual time
//!
//! Each domain has an *actual virtual time* A. Using a processor for t makes it t * 256 / weight older. Who is the
//! youngest runs next. A domain that wakes up is made as old as the youngest that wants to run (the *scheduler's
//! virtual time*), so that sleeping saves nothing up. What decides is the *effective virtual time* E = A - warp: a
//! domain that is warped borrows against its future, and is served at once when it wakes up, but at the same price.
//!
//! What rules it:
//!
//! 1. *What was used is charged, whoever used it, and whether or not it was permitted.* A domain that takes more than
//!    it was given is older for it, and gains nothing in the end.
//! 2. *A domain has one account*, however many vCPUs it has. Time that is promised to its vCPUs already counts when
//!    the next one is chosen.
//! 3. *Nobody is owed what nobody withheld.* A domain of which no vCPU waits has what it can use, even if that is less
//!    than its weight's worth (one vCPU cannot use two processors). It falls behind the others by no more than
//!    [`limits::LAG_MAX`], so that it cannot call in an old debt later, all at once.
//! 4. *A quantum is decided before the one before it ends* ([`limits::MARGIN`]), so that a vCPU that goes on never
//!    stops, and the next one starts without anybody to start it.
//! 5. *As long as there are processors enough, nothing is decided*: permits are without end, but for caps.

#![forbid(unsafe_code)]

mod account;
mod budget;
mod bvt;
mod host;
pub mod limits;
mod overdraft;
mod policy;
pub mod simulator;

pub use bvt::Bvt;
pub use host::Host;
pub use overdraft::Overdraft;
pub use policy::{Cap, Policy, Weight};

use std::time::Duration;

/// A domain, as who uses the scheduler numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

/// A vCPU of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcpuId {
    /// Whose.
    pub domain: DomainId,
    /// Which of them, from 0 on.
    pub number: usize,
}

/// When a vCPU may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// Not now; it is told when.
    No,
    /// From one time until another.
    Span {
        /// It may have passed.
        from: Duration,
        /// It may be made later before it comes.
        until: Duration,
    },
    /// For as long as it likes.
    Unlimited,
}

/// What decides. All times are since one and the same moment, and do not go back.
pub trait Scheduler {
    /// There is another domain, all of whose vCPUs sleep.
    fn add(&mut self, domain: DomainId, vcpus: usize, policy: Policy);
    /// A domain is gone.
    fn remove(&mut self, domain: DomainId);
    /// A domain is worth something else now.
    fn set_policy(&mut self, domain: DomainId, policy: Policy);
    /// A vCPU wants to run.
    fn wake(&mut self, vcpu: VcpuId, now: Duration);
    /// A vCPU has nothing to do.
    fn block(&mut self, vcpu: VcpuId, now: Duration);
    /// A domain has used so much more time of processors.
    fn charge(&mut self, domain: DomainId, used: Duration, now: Duration);
    /// Decide who runs; when to decide again at the latest, if nothing happens until then. None: not before something
    /// does.
    fn plan(&mut self, now: Duration) -> Option<Duration>;
    /// What was decided for a vCPU.
    fn permit(&self, vcpu: VcpuId) -> Permit;
    /// Whether permits are limited now because there are not processors enough, so that wake-ups and blocks are to be
    /// told at once.
    fn is_busy(&self) -> bool;
    /// Whether a domain's permits may be limited now: because of that, or by its cap.
    fn limits(&self, domain: DomainId) -> bool;
    /// The virtual time of a domain, for who wants to look.
    fn age(&self, domain: DomainId) -> Option<i64>;
    /// Whether a domain that takes what it is not given has had more than the others by now.
    fn is_ahead(&self, domain: DomainId) -> bool;
}

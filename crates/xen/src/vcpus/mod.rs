//! The vCPUs: whether they are up, what they start with, their timers, and where they share what with the guest.
//!
//! A vCPU's thread asks after each exit whether there is something for it. So who has changed a vCPU leaves a summary
//! ([`Summary`]) when it lets go of it, which is read without the lock.

mod operations;
mod runstate;
mod saved;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use locks::Unpoisoned;
use xen_abi::vcpu::GuestContext;

use crate::geometry::Geometry;
use runstate::Accounts;

pub(crate) use operations::{set_timer_op, vcpu_op, write_runstate};
pub(crate) use runstate::State;
pub(crate) use saved::SavedVcpu;

/// Bytes of a `vcpu_info`.
const INFO_BYTES: u64 = 64;

/// The shortest period of a periodic timer.
const MIN_PERIOD_NS: u64 = 1_000_000;

/// The longest, about 146 years: sums do not overflow.
const MAX_PERIOD_NS: u64 = i64::MAX as u64 / 2;

/// Of a vCPU, what its thread and the others' change.
#[derive(Default)]
pub(crate) struct Vcpu {
    /// What it starts with, once it is up.
    pub(crate) context: Option<Box<GuestContext>>,
    pub(crate) is_initialised: bool,
    pub(crate) is_up: bool,
    has_own_info: bool,
    /// In system time.
    single_shot: Option<u64>,
    /// The period, and when it ends next.
    periodic: Option<(u64, u64)>,
    /// The ports that it waits for, masked or not, and until when.
    poll: Option<(Vec<u32>, Option<u64>)>,
    /// Linear addresses.
    runstate_area: Option<u64>,
    accounts: Accounts,
    /// A non-maskable interrupt was sent.
    nmi: bool,
}

/// What a vCPU's thread asks for all the time.
struct Summary {
    /// It is not up, or there is something else that is rarely so: a context, an NMI, ports that it waits for.
    is_rare: AtomicBool,
    /// [`Vcpu::next_deadline`]; the largest number is none.
    deadline: AtomicU64,
}

impl Default for Summary {
    fn default() -> Self {
        Self { is_rare: AtomicBool::new(true), deadline: AtomicU64::new(u64::MAX) }
    }
}

/// A vCPU that nobody else changes meanwhile.
pub(crate) struct VcpuGuard<'a> {
    vcpu: MutexGuard<'a, Vcpu>,
    summary: &'a Summary,
}

impl Deref for VcpuGuard<'_> {
    type Target = Vcpu;

    fn deref(&self) -> &Vcpu {
        &self.vcpu
    }
}

impl DerefMut for VcpuGuard<'_> {
    fn deref_mut(&mut self) -> &mut Vcpu {
        &mut self.vcpu
    }
}

impl Drop for VcpuGuard<'_> {
    /// The summary is of the time before the lock is free.
    fn drop(&mut self) {
        let vcpu = &*self.vcpu;
        let is_rare = !vcpu.is_up || vcpu.context.is_some() || vcpu.nmi || vcpu.poll.is_some();
        self.summary.is_rare.store(is_rare, Ordering::SeqCst);
        let deadline = vcpu.next_deadline().unwrap_or(u64::MAX);
        self.summary.deadline.store(deadline, Ordering::SeqCst);
    }
}

/// All of them.
pub(crate) struct Vcpus {
    vcpus: Box<[(Mutex<Vcpu>, Summary)]>,
    /// Where each one's `vcpu_info` is.
    infos: Box<[AtomicU64]>,
}

impl Vcpus {
    /// Of a domain that has not started.
    pub(crate) fn new(count: usize, geometry: &Geometry) -> Self {
        let info = |number| AtomicU64::new(first_info(number, geometry));
        Self {
            vcpus: (0..count).map(|_| Default::default()).collect(),
            infos: (0..count).map(info).collect(),
        }
    }

    /// As before the domain's start.
    pub(crate) fn clear(&self, geometry: &Geometry) {
        for number in 0..self.vcpus.len() {
            *self.vcpu(number) = Vcpu::default();
            self.set_info(number, first_info(number, geometry));
        }
    }

    /// One of them; there is such.
    pub(crate) fn vcpu(&self, number: usize) -> VcpuGuard<'_> {
        let (vcpu, summary) = &self.vcpus[number];
        VcpuGuard { vcpu: vcpu.lock().unpoisoned(), summary }
    }

    /// One of them, if it is not simply running.
    pub(crate) fn rare(&self, number: usize) -> Option<VcpuGuard<'_>> {
        self.vcpus[number].1.is_rare.load(Ordering::SeqCst).then(|| self.vcpu(number))
    }

    /// The earliest deadline of one of them, in system time.
    pub(crate) fn next_deadline(&self, number: usize) -> Option<u64> {
        let deadline = self.vcpus[number].1.deadline.load(Ordering::SeqCst);
        (deadline != u64::MAX).then_some(deadline)
    }

    /// Where a vCPU's `vcpu_info` is.
    pub(crate) fn info(&self, number: usize) -> u64 {
        self.infos[number].load(Ordering::SeqCst)
    }

    fn set_info(&self, number: usize, at: u64) {
        self.infos[number].store(at, Ordering::SeqCst);
    }

    /// Have a vCPU start with this.
    pub(crate) fn start(&self, number: usize, context: Box<GuestContext>) {
        let mut vcpu = self.vcpu(number);
        vcpu.context = Some(context);
        (vcpu.is_initialised, vcpu.is_up) = (true, true);
    }
}

/// Where a vCPU's `vcpu_info` is before the guest has registered another place.
fn first_info(number: usize, geometry: &Geometry) -> u64 {
    let place = number as u64 % xen_abi::shared::LEGACY_VCPUS as u64;
    geometry.shared_info().address() + INFO_BYTES * place
}

impl Vcpu {
    /// The earliest of its deadlines, in system time.
    fn next_deadline(&self) -> Option<u64> {
        let poll = self.poll.as_ref().and_then(|(_, until)| *until);
        let periodic = self.periodic.map(|(_, next)| next);
        [self.single_shot, periodic, poll].into_iter().flatten().min()
    }

    /// Whether a timer is due at a system time; it is set anew, or not at all.
    pub(crate) fn take_due(&mut self, now: u64) -> bool {
        let mut is_due = false;
        if self.single_shot.is_some_and(|deadline| deadline <= now) {
            self.single_shot = None;
            is_due = true;
        }
        if let Some((period, next)) = &mut self.periodic
            && *next <= now
        {
            let periods = (now - *next) / *period + 1;
            *next = next.saturating_add(periods.saturating_mul(*period));
            is_due = true;
        }
        is_due
    }

    /// Whether the vCPU waits for one of these ports, or for no longer than now.
    pub(crate) fn take_polled(&mut self, now: u64, is_pending: impl Fn(u32) -> bool) -> bool {
        let Some((ports, until)) = &self.poll else { return false };
        let is_over = until.is_some_and(|until| until <= now);
        let is_done = is_over || ports.iter().any(|port| is_pending(*port));
        if is_done {
            self.poll = None;
        }
        is_done
    }

    /// Wait for ports.
    pub(crate) fn poll(&mut self, ports: Vec<u32>, until: Option<u64>) {
        self.poll = Some((ports, until));
    }

    /// Not any more.
    pub(crate) fn end_poll(&mut self) {
        self.poll = None;
    }

    /// A non-maskable interrupt that was sent, once.
    pub(crate) fn take_nmi(&mut self) -> bool {
        std::mem::take(&mut self.nmi)
    }

    /// The guest has said where its `vcpu_info` is.
    pub(crate) fn has_own_info(&self) -> bool {
        self.has_own_info
    }

    /// What it does from now on, a system time.
    pub(crate) fn enter(&mut self, state: State, now: u64) {
        self.accounts.enter(state, now);
    }

    /// Whether the guest is told what it does.
    pub(crate) fn tells_states(&self) -> bool {
        self.is_up && self.runstate_area.is_some()
    }

    /// See [`Accounts::steal`].
    pub(crate) fn steal(&mut self, total: u64, now: u64) {
        self.accounts.steal(total, now);
    }
}

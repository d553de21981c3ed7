//! A vCPU at its gate ([`gates`]): whether its thread may run guest code, and that it waits if not.
//!
//! A thread that waits at its gate is awake for its guest (it is *runnable*, and its time is stolen), and asleep for
//! the host. It does what it would do in a halt: others need not wait for it, and whoever wakes it, for an order of the
//! machine's for one, gets it to the head of the run loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use gates::{Gate, Gates, Word};
use machine::time::Nanoseconds;

use crate::control::Control;
use crate::waker::Waker;

/// How often it is looked whether there is still a keeper.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// The gate of one vCPU, for its own thread. Without gates, it is always open.
#[derive(Debug)]
pub(super) struct OwnGate<'a> {
    gates: Option<&'a Gates>,
    vcpu: usize,
    /// The end of the last permit, and when that is on the machine's clock.
    end: Option<(u64, Nanoseconds)>,
}

impl<'a> OwnGate<'a> {
    /// Of this vCPU, which wants to run from now on.
    pub(super) fn new(gates: Option<&'a Gates>, vcpu: usize) -> Self {
        let gate = Self { gates: gates.filter(|gates| vcpu < gates.vcpus()), vcpu, end: None };
        gate.wants(true);
        gate
    }

    /// The vCPU wants to run, or has nothing to do.
    pub(super) fn wants(&self, wants: bool) {
        if let Some(gates) = self.gates {
            gates.say(self.vcpu, wants);
        }
    }

    /// Whether somebody else may want the core, too.
    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.gates.is_some_and(|gates| !gates.is_open(self.vcpu))
    }

    /// Whether the vCPU has to wait; if not, [`Self::deadline`] says for how long.
    #[inline]
    pub(super) fn is_shut(&mut self, now: impl FnOnce() -> Nanoseconds) -> bool {
        match self.gates {
            Some(gates) if !gates.is_open(self.vcpu) => self.look(gates, now),
            _ => {
                self.end = None;
                false
            }
        }
    }

    #[cold]
    fn look(&mut self, gates: &Gates, now: impl FnOnce() -> Nanoseconds) -> bool {
        match gates.look(self.vcpu) {
            Gate::Open => self.end = None,
            Gate::Until(until) => {
                if self.end.is_none_or(|(seen, _)| seen != until) {
                    let left = Nanoseconds(until.saturating_sub(gates::now()));
                    self.end = Some((until, now().after(left)));
                }
            }
            Gate::Shut(_) => {
                self.end = None;
                return gates.is_kept(self.vcpu);
            }
        }
        false
    }

    /// When the vCPU has to come back to its gate.
    pub(super) fn deadline(&self) -> Option<Nanoseconds> {
        self.end.map(|(_, deadline)| deadline)
    }

    /// Wait until the gate may be open, or somebody wakes the vCPU.
    pub(super) fn wait(&self, waker: &Waker) {
        let Some(gates) = self.gates else { return };
        let go = gates.go(self.vcpu);
        let go = Word { word: go, value: go.load(Ordering::SeqCst), is_shared: true };
        let Gate::Shut(from) = gates.look(self.vcpu) else { return };
        gates.tell();
        let start = Instant::now();
        let look = gates::now().saturating_add(LOOK_PERIOD.as_nanos() as u64);
        waker.sleep_for(go, from.map_or(look, |from| from.min(look)));
        gates.has_waited(self.vcpu, start.elapsed());
    }
}

impl Drop for OwnGate<'_> {
    fn drop(&mut self) {
        self.wants(false);
    }
}

/// Start the thread that serves the keeper's orders: vCPUs whose gates have been shut are wanted back. It ends with
/// what is returned.
pub(super) fn serve<'scope>(
    scope: &'scope Scope<'scope, '_>,
    gates: Option<&'scope Gates>,
    control: &'scope Control,
) -> Option<Served<'scope>> {
    let gates = gates?;
    let served = Served { gates, is_over: Arc::default() };
    let is_over = Arc::clone(&served.is_over);
    let serve = move || serve_orders(gates, control.wakers(), &is_over);
    let started = thread::Builder::new().name("gates".into()).spawn_scoped(scope, serve);
    if let Err(error) = started {
        control.end(Err(error.into()));
    }
    Some(served)
}

fn serve_orders(gates: &Gates, wakers: &[Waker], is_over: &AtomicBool) {
    let mut seen = gates.orders();
    while !is_over.load(Ordering::SeqCst) {
        seen = gates.wait_for_orders(seen);
        for (vcpu, waker) in wakers.iter().enumerate().take(gates.vcpus()) {
            if gates.wants(vcpu) && !gates.is_open(vcpu) {
                waker.wake();
            }
        }
    }
}

/// Ends who serves orders, also when the thread that has it panics.
pub(super) struct Served<'a> {
    gates: &'a Gates,
    is_over: Arc<AtomicBool>,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.gates.order();
    }
}

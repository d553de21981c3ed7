//! The scheduler's thread: it tells [`scheduler`] what has happened, and carries out what that decides.
//!
//! It sleeps until the scheduler wants to decide again, until a domain that is attended has news, or until the main
//! thread has something for it; if none of them can come about, it sleeps for good.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use api::keeper::{SchedulerKind, Standing};
use gates::{Gates, Word, wait_for_any};
use rustix::thread::futex;
use scheduler::{Bvt, DomainId, Host, Overdraft, Permit, Policy, Scheduler, VcpuId};

use crate::limits::{
    CLIENT_TIMEOUT, HEARTBEAT_PERIOD, IDLE_PERIOD, POLL_PERIOD, SILENCE_MAX, STOP_DOUBLINGS,
    STOP_MAX,
};
use crate::meter::{Member, Meter, Used};

/// Something for this thread.
pub(crate) enum Message {
    /// There is another domain.
    Add(DomainId, Box<Newcomer>),
    /// A domain has ended.
    Remove(DomainId),
    /// A domain is worth something else.
    Policy(DomainId, Policy),
    /// These are a domain's processes.
    Members(DomainId, Vec<Member>),
    /// Decide in another way from now on.
    Scheduler(SchedulerKind),
    /// Say how domains stand.
    Standings(Sender<Vec<Standing>>),
    /// It is over.
    End,
}

/// A domain that this thread has not seen.
pub(crate) struct Newcomer {
    pub(crate) name: String,
    pub(crate) gates: Gates,
    pub(crate) policy: Policy,
    pub(crate) members: Vec<Member>,
    /// What has the host continue it when this process ends: without it, it is never stopped.
    pub(crate) lifeline: Option<File>,
}

/// The main thread's way to this one.
pub(crate) struct Handle {
    messages: Sender<Message>,
    bell: Arc<AtomicU32>,
    is_deciding: Arc<AtomicBool>,
}

impl Handle {
    /// Start the thread, on a host with so many processors.
    pub(crate) fn start(processors: usize, kind: SchedulerKind) -> std::io::Result<Self> {
        let (messages, receiver) = mpsc::channel();
        let (bell, is_deciding) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let engine = Engine {
            kind,
            scheduler: scheduler(kind, processors),
            processors,
            domains: BTreeMap::new(),
            messages: receiver,
            bell: Arc::clone(&bell),
            says_deciding: Arc::clone(&is_deciding),
            asked: Vec::new(),
            last: Duration::ZERO,
        };
        std::thread::Builder::new().name("scheduler".into()).spawn(move || engine.run())?;
        Ok(Self { messages, bell, is_deciding })
    }

    /// Leave a message.
    pub(crate) fn send(&self, message: Message) {
        // Once it has ended, nobody wants anything of it.
        let _ = self.messages.send(message);
        self.bell.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&self.bell, futex::Flags::PRIVATE, 1);
    }

    /// How domains stand, in the order in which they were found; none if it is not said within [`CLIENT_TIMEOUT`].
    pub(crate) fn standings(&self) -> Option<Vec<Standing>> {
        let (sender, receiver) = mpsc::channel();
        self.send(Message::Standings(sender));
        receiver.recv_timeout(CLIENT_TIMEOUT).ok()
    }

    /// Whether the time that domains use decides anything now.
    pub(crate) fn is_deciding(&self) -> bool {
        self.is_deciding.load(Ordering::Relaxed)
    }
}

/// A domain as it is kept.
struct Kept {
    name: String,
    gates: Gates,
    policy: Policy,
    meter: Meter,
    overdraft: Overdraft,
    lifeline: Option<File>,
    /// Since when its processes have been stopped, and how often they have.
    stopped: Option<Duration>,
    stops: u64,
    /// What its vCPUs were told last, and whether they wanted to run then.
    vcpus: Vec<(Permit, bool)>,
}

fn scheduler(kind: SchedulerKind, processors: usize) -> Box<dyn Scheduler + Send> {
    match kind {
        SchedulerKind::Bvt => Box::new(Bvt::new(processors)),
        SchedulerKind::Host => Box::new(Host),
    }
}

struct Engine {
    kind: SchedulerKind,
    scheduler: Box<dyn Scheduler + Send>,
    processors: usize,
    domains: BTreeMap<DomainId, Kept>,
    messages: Receiver<Message>,
    bell: Arc<AtomicU32>,
    /// What the main thread is told of [`Self::is_deciding`].
    says_deciding: Arc<AtomicBool>,
    /// Those who wait to be told how domains stand.
    asked: Vec<Sender<Vec<Standing>>>,
    /// When it was decided last.
    last: Duration,
}

impl Engine {
    fn run(mut self) {
        // Wakes up when it wants to, not 50 microseconds later (prctl(2), PR_SET_TIMERSLACK).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        loop {
            let rung = self.bell.load(Ordering::SeqCst);
            if self.take_messages() {
                return;
            }
            // Whoever says something from here on changes its word.
            let news: Vec<u32> = self
                .domains
                .values()
                .map(|kept| kept.gates.news().load(Ordering::SeqCst))
                .collect();
            let now = Duration::from_nanos(gates::now());
            self.look(now);
            let next = self.scheduler.plan(now);
            self.carry_out(now);
            self.says_deciding.store(self.is_deciding(), Ordering::Relaxed);
            self.answer();
            let until = self.until(now, next);
            self.sleep(rung, &news, until);
        }
    }

    /// Whether it is over.
    fn take_messages(&mut self) -> bool {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Add(id, newcomer) => self.add(id, *newcomer),
                Message::Remove(id) => {
                    self.scheduler.remove(id);
                    // Its helpers end when they hear that it has, for which they have to run.
                    if let Some(kept) = self.domains.remove(&id).filter(|it| it.stopped.is_some()) {
                        kept.meter.stop(false);
                    }
                }
                Message::Policy(id, policy) => {
                    self.scheduler.set_policy(id, policy);
                    if let Some(kept) = self.domains.get_mut(&id) {
                        kept.policy = policy;
                    }
                }
                Message::Members(id, members) => {
                    if let Some(kept) = self.domains.get_mut(&id) {
                        kept.meter.set_members(members);
                        if kept.stopped.is_some() {
                            kept.meter.stop(true);
                        }
                    }
                }
                Message::Scheduler(kind) => self.decide_by(kind),
                Message::Standings(to) => self.asked.push(to),
                Message::End => return true,
            }
        }
        false
    }

    /// Begin again with another scheduler. What was told stays until the new one has decided.
    fn decide_by(&mut self, kind: SchedulerKind) {
        (self.kind, self.scheduler) = (kind, scheduler(kind, self.processors));
        for (&id, kept) in &mut self.domains {
            self.scheduler.add(id, kept.vcpus.len(), kept.policy);
            kept.vcpus.iter_mut().for_each(|(_, wanted)| *wanted = false);
        }
    }

    fn add(&mut self, id: DomainId, newcomer: Newcomer) {
        let Newcomer { name, gates, policy, members, lifeline } = newcomer;
        let mut meter = Meter::default();
        meter.set_members(members);
        let vcpus = vec![(Permit::Unlimited, false); gates.vcpus()];
        // What it was told by a keeper before us is over.
        (0..gates.vcpus()).for_each(|vcpu| gates.permit(vcpu, None));
        (0..gates.vcpus()).for_each(|vcpu| gates.let_go(vcpu));
        self.scheduler.add(id, gates.vcpus(), policy);
        let (overdraft, stopped, stops) = (Overdraft::default(), None, 0);
        let kept = Kept { name, gates, policy, meter, overdraft, lifeline, stopped, stops, vcpus };
        self.domains.insert(id, kept);
    }

    /// See who wants to run, and what everybody has used.
    fn look(&mut self, now: Duration) {
        let last = std::mem::replace(&mut self.last, now);
        let scheduler = &mut self.scheduler;
        let is_late = now.saturating_sub(last) > SILENCE_MAX;
        for (&domain, kept) in &mut self.domains {
            let mut given = Duration::ZERO;
            for (number, (permit, wanted)) in kept.vcpus.iter_mut().enumerate() {
                given += match *permit {
                    Permit::No => Duration::ZERO,
                    Permit::Unlimited => now - last,
                    Permit::Span { from, until } => until.min(now).saturating_sub(from.max(last)),
                };
                let vcpu = VcpuId { domain, number };
                let wants = kept.gates.wants(number);
                match (std::mem::replace(wanted, wants), wants) {
                    (false, true) => scheduler.wake(vcpu, now),
                    (true, false) => scheduler.block(vcpu, now),
                    _ => {}
                }
            }
            let used = kept.meter.read(!given.is_zero());
            scheduler.charge(domain, used.all, now);
            let (is_limited, is_ahead) = (scheduler.limits(domain), scheduler.is_ahead(domain));
            match is_limited && !is_late {
                true => kept.judge(given, used, now, is_ahead),
                false => kept.overdraft.forget(now),
            }
            kept.forgive(now, !is_limited || !is_ahead);
        }
    }

    /// Open and shut gates as it was decided.
    fn carry_out(&mut self, now: Duration) {
        let beat = gates::now();
        for (&domain, kept) in &mut self.domains {
            let gates = &kept.gates;
            let is_attended = self.scheduler.limits(domain);
            gates.attend(is_attended);
            gates.beat(beat);
            let mut is_cut = false;
            for (number, (told, wants)) in kept.vcpus.iter_mut().enumerate() {
                let permit = self.scheduler.permit(VcpuId { domain, number });
                // One that sleeps is shut until it says that it wants to run.
                let permit = if *wants || !is_attended { permit } else { Permit::No };
                let mut before = std::mem::replace(told, permit);
                let (span, is_shut) = as_told(permit);
                if !gates.is_as_set(number, as_told(before).0, as_told(before).1) {
                    // It was opened, because we were late if not for worse reasons.
                    before = Permit::Unlimited;
                }
                match is_shut {
                    _ if before == permit => continue,
                    true => gates.shut(number),
                    false => gates.permit(number, span),
                }
                // Who runs comes back when its permit ends, unless that ends earlier now.
                is_cut |= may_run(before, now) && *wants && end(permit) < end(before);
                // Who waits at its gate looks again, if only to know from when on it may run. That includes who should
                // run: what it was permitted before may have ended since it was decided to let it go on.
                if permit != Permit::No {
                    gates.let_go(number);
                }
            }
            if is_cut {
                gates.order();
            }
        }
    }

    /// Tell those who have asked, with what has been used until now.
    fn answer(&mut self) {
        for to in std::mem::take(&mut self.asked) {
            // Who asked may have lost patience.
            let _ = to.send(self.standings());
        }
    }

    fn standings(&self) -> Vec<Standing> {
        let standing = |(id, kept): (&DomainId, &Kept)| {
            let waits: Vec<_> =
                (0..kept.gates.vcpus()).map(|vcpu| kept.gates.waits(vcpu)).collect();
            Standing {
                name: kept.name.clone(),
                vcpus: kept.gates.vcpus(),
                runnable: kept.vcpus.iter().filter(|(_, wants)| *wants).count(),
                running: kept
                    .vcpus
                    .iter()
                    .filter(|(told, wants)| *wants && *told != Permit::No)
                    .count(),
                weight: kept.policy.weight.get(),
                cap: kept.policy.cap.map(scheduler::Cap::percent),
                warp_ms: u64::try_from(kept.policy.warp.as_millis()).unwrap_or(u64::MAX),
                used_ns: nanoseconds(kept.meter.total),
                waited_ns: waits.iter().map(|waits| nanoseconds(waits.total)).sum(),
                waits: waits.iter().map(|waits| waits.count).sum(),
                longest_wait_ns: waits.iter().map(|it| nanoseconds(it.longest)).max().unwrap_or(0),
                virtual_time: self.scheduler.age(*id).unwrap_or(0),
                stops: kept.stops,
                is_stopped: kept.stopped.is_some(),
            }
        };
        self.domains.iter().map(standing).collect()
    }

    /// Whether anybody's permits may be limited now.
    fn is_deciding(&self) -> bool {
        self.domains.keys().any(|&domain| self.scheduler.limits(domain))
    }

    /// When to look again; none is not before something happens.
    fn until(&self, now: Duration, next: Option<Duration>) -> Option<Duration> {
        let vcpus: usize = self.domains.values().map(|kept| kept.vcpus.len()).sum();
        let wanted = self.domains.values().flat_map(|kept| &kept.vcpus).filter(|it| it.1).count();
        let poll = if wanted > 0 { POLL_PERIOD } else { IDLE_PERIOD };
        let (is_deciding, is_busy) = (self.is_deciding(), self.scheduler.is_busy());
        // As many vCPUs as there are processors need nobody who decides.
        let may_decide = self.kind == SchedulerKind::Bvt && vcpus > self.processors || is_deciding;
        let poll = (may_decide && !is_busy).then_some(now + poll);
        let beat = is_deciding.then_some(now + HEARTBEAT_PERIOD);
        next.into_iter().chain(poll).chain(beat).min()
    }

    fn sleep(&self, rung: u32, news: &[u32], until: Option<Duration>) {
        let bell = Word { word: &self.bell, value: rung, is_shared: false };
        let mut words = vec![bell];
        for ((&domain, kept), value) in self.domains.iter().zip(news) {
            if self.scheduler.limits(domain) {
                words.push(Word { word: kept.gates.news(), value: *value, is_shared: true });
            }
        }
        wait_for_any(&words, until.map(nanoseconds));
    }
}

impl Kept {
    /// It was given and has used so much: stop it if it takes more than it is given. It stays stopped though somebody
    /// continues it.
    fn judge(&mut self, given: Duration, used: Used, now: Duration, is_ahead: bool) {
        if self.stopped.is_some() {
            if !used.guest.is_zero() {
                self.meter.stop(true);
            }
            return;
        }
        let takes = self.overdraft.observe(given, used.guest, now);
        if takes && is_ahead && self.lifeline.is_some() {
            self.meter.stop(true);
            (self.stopped, self.stops) = (Some(now), self.stops + 1);
        }
    }

    /// Let it go on if it has been stopped for long enough.
    fn forgive(&mut self, now: Duration, is_even: bool) {
        let doublings = self.overdraft.found().saturating_sub(1).min(STOP_DOUBLINGS);
        let most = STOP_MAX * 2_u32.pow(doublings);
        if self.stopped.is_some_and(|since| is_even || now >= since + most) {
            self.meter.stop(false);
            self.stopped = None;
            self.overdraft.forget(now);
        }
    }
}

/// What the gate says: the span in which it is open, which is for ever if there is none; or that it is shut.
fn as_told(permit: Permit) -> (Option<(u64, u64)>, bool) {
    match permit {
        Permit::No => (None, true),
        Permit::Unlimited => (None, false),
        Permit::Span { from, until } => (Some((nanoseconds(from), nanoseconds(until))), false),
    }
}

fn may_run(permit: Permit, now: Duration) -> bool {
    match permit {
        Permit::No => false,
        Permit::Unlimited => true,
        Permit::Span { from, until } => (from..until).contains(&now),
    }
}

fn end(permit: Permit) -> Duration {
    match permit {
        Permit::No => Duration::ZERO,
        Permit::Unlimited => Duration::MAX,
        Permit::Span { until, .. } => until,
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

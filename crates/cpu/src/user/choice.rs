//! Which of a guest's threads run directly.
//!
//! Direct execution costs a *stop* for every entry into the guest's kernel, some microseconds, and
//! nothing between two of them. Translated code enters the kernel for nothing, and *loses* a share of
//! the time in between: what is spent on misses and look-ups, which is measured (run.rs), and half of
//! the rest, which is an estimate. With a share of g lost, and runs of r
//! cycles between two entries, direct execution takes 1 + stop / r of the time that the program
//! needs and translation 1 / (1 - g): direct is better from r = stop * (1 - g) / g on, the
//! *break-even*.
//!
//! A stop's cost is measured on the host at start-up (calibrate.rs). At a translated thread we *look*
//! at every interrupt that comes in user code, the guest's own clock tick mostly, and a millisecond
//! after it has been seen first, for which the processor sets a timer (look.rs). Whoever is running
//! then is taken to have run since the look before, or since the address space was switched, and is
//! found to compute if its runs were [`PROMOTE`] times the break-even. It becomes direct at once if there was next to
//! no entry, and at the second such look otherwise. Who is found not to compute [`MAX_BAD_LOOKS`] times in a row
//! is looked at no more but at interrupts, so that who enters the kernel often pays for none of this.
//! What a program is like is remembered longer than its processes live (programs.rs): its next thread may
//! begin directly.
//!
//! Of a direct thread the runs are known exactly, and so is what they cost: a stop of the helper, and what the
//! processor did for it beside (a helper is made, pages are compared with the page tables, unmapped and mapped). A
//! process that has just forked, or begun, pays many times the price of a stop for each of its runs. The break-even
//! grows with what a stop has cost on average, and the thread is translated again when its average run falls below
//! that, or when it keeps coming to pages that must not run directly. So that nobody flaps, each
//! thread that was mistaken for one that computes has to show twice as many good looks the next time. But a
//! compiler that looks for its headers calls its kernel some hundred times in a row, and then computes again: who
//! ran for longer than its stops were worth, from when it became direct to when it ceased to be, only *rests*. It is
//! back at the first good look.
//!
//! What counts is what a thread has had of a core, not how late it is: a core that the host gives to somebody
//! else for some milliseconds would look like computing. That is asked of the host at each look, and where an
//! address space was switched since the look before, for which that would be dear, it is a bound.
//!
//! A thread is told by its address space and FS base, which every thread library has as its own. An
//! address space is told by where its page tables are, where those of another process will be once it
//! is gone. So who was direct and has not been seen for some time is translated, as everybody is at
//! first.

use rustc_hash::FxHashMap;

use super::programs::{CodePage, Programs, Runs};

/// How many times the break-even a thread's runs must be for it to become direct: what passes between two
/// entries is the kernel's time as well.
const PROMOTE: u64 = 5;

/// One in how many cycles translated code loses in itself.
const LOST_IN_CODE: u64 = 2;

/// One in how many cycles it is helped for counts at most when a thread is to become direct: more than
/// that may be a new process's first steps. What makes a direct thread stay so is all of it, as programs of a
/// compiler's size are five times slower translated; but never shorter runs than a part of a stop.
const MAX_HELPED: u64 = 2;
const LEAST_BREAK_EVEN: u64 = 2;

/// How many stops' worth a look has to look back.
pub(super) const LEAST_LOOK: u64 = 100;

/// Good looks that make a thread direct, at first and at most. Runs that are longer than so many stops
/// count twice. With any one good look, short-lived processes are met by one now and then, have a helper
/// made and are gone.
const GOOD_LOOKS: u32 = 2;
const MAX_GOOD_LOOKS: u32 = 512;
const CLEAR: u64 = 40;

/// Those that a thread needs that rests, and how many times over its stops must have been worth it for that.
const LOOKS_AT_REST: u32 = 1;
const WORTH_TO_REST: u64 = 2;

/// Good looks that a thread needs that is found in a program whose threads have not been worth it.
const REFUTED_LOOKS: u32 = 8;

/// Bad looks in a row after which a thread is looked at by the way only.
const MAX_BAD_LOOKS: u32 = 8;

/// A run's share in the average: a program that computes reads and writes files in one go now and then.
const WEIGHT: u64 = 32;

/// A fault that only the helper's own mappings were the reason for weighs less: it maps what is
/// around it as well, and does not come again.
const MISS_WEIGHT: u64 = 64;

/// How many stops' worth one stop costs at most. If it took longer, the host had the core.
const MAX_COST: u64 = 32;

/// A thread that stays direct for so many stops' worth was chosen well.
const PROVEN: u64 = 100_000;

/// One that has been so for so many was worth its helper, and its program is remembered; one that is gone before
/// that was not if it was direct for less than a part of it.
const WORTH: u64 = 1000;
const WORTH_OF_THE_GONE: u64 = WORTH / 4;

/// How many times the break-even the average of a thread is at most when it becomes direct: what it is
/// really like shows soon.
const MAX_ADVANCE: u64 = 8;

/// Stops at pages that must not run directly (to read the clock, for instance) within so many stops' worth of
/// running directly, at which that ends. Each costs a stop, and what follows is translated for the time of a few: as
/// often as that, about what translating everything would lose. What counts is who comes again to one of the last
/// few: who comes to others, one by one, has copies of them made (copies.rs).
const MAX_BARRED: u32 = 10;
const BARRED_SPAN: u64 = 60;
const BARRED_PAGES: usize = 4;

/// How many stops' worth a direct thread is remembered as one while it does not run.
const ABSENCE: u64 = 12_500;

/// Threads that are remembered. Those of dead processes are forgotten with the rest.
const MAX_THREADS: usize = 4096;

/// A thread of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ThreadKey {
    /// Physical address of its page tables.
    pub(crate) root: u64,
    /// FS base.
    pub(crate) fs_base: u64,
}

/// Where a thread was when it became direct, until it has turned out whether it was worth it.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// It was found to compute there.
    Found(CodePage),
    /// It began directly there.
    Began(u64),
}

/// What is known of a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    direct: bool,
    /// Never to be direct again: it needs what a helper cannot have.
    banned: bool,
    /// Cycles between two stops, on average, and from which number of them on direct is better.
    average: u64,
    break_even: u64,
    /// Cycles since the last stop.
    running: u64,
    /// Cycles that the processor has spent on it since then beside the stop itself, and what a stop costs with
    /// that, on average.
    spending: u64,
    cost: u64,
    /// Good looks in a row, and how many it takes beyond the first few.
    good: u32,
    needed: u32,
    /// Bad looks in a row.
    bad: u32,
    /// Cycles since it became direct, and those that its stops have cost.
    total: u64,
    spent: u64,
    /// Stops at pages that must not run directly, and what `total` was at the first of them.
    barred: u32,
    barred_since: u64,
    /// The last of these pages, each once.
    barred_pages: [u64; BARRED_PAGES],
    origin: Option<Origin>,
    /// Time-stamp counter when it last ran directly, or became direct.
    seen: u64,
}

impl Thread {
    /// Count a stop and the run before it, with so much weight. A stop costs `stop` cycles at least.
    fn count_stop(&mut self, weight: u64, stop: u64) {
        let (run, spending) =
            (std::mem::take(&mut self.running), std::mem::take(&mut self.spending));
        let cost = stop.saturating_add(spending).min(MAX_COST * stop);
        self.average = self.average - self.average / weight + run / weight;
        self.cost = self.cost - self.cost / weight + cost / weight;
        self.spent = self.spent.saturating_add(cost);
    }

    /// From which length of a run on direct is better, as its stops cost more than `stop`.
    fn dear_break_even(&self, stop: u64) -> u64 {
        times(self.break_even, self.cost.max(stop), stop)
    }

    /// Whether it has run for more than so many times what its stops were worth.
    fn was_worth(&self, times_over: u64, stop: u64) -> bool {
        self.total / times_over > times(self.break_even, self.spent, stop)
    }
}

/// `value * numerator / denominator`.
fn times(value: u64, numerator: u64, denominator: u64) -> u64 {
    let result = u128::from(value) * u128::from(numerator) / u128::from(denominator);
    result.try_into().unwrap_or(u64::MAX)
}

/// What a processor has done until a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moment {
    /// Time-stamp counter.
    pub(crate) time: u64,
    /// Times that user code entered the kernel.
    pub(crate) entries: u64,
    /// Cycles that translated user code did not run for, because it had to be helped.
    pub(crate) lost: u64,
}

impl Moment {
    /// What the runs were like since an earlier moment, without what was lost, and how long they have to be
    /// for the thread to become direct; `had` is how many of the cycles it had a core for. If that was taken
    /// away, it may have been while somebody was being helped.
    fn since(self, before: Self, had: u64, stop: u64) -> (Runs, u64) {
        let passed = self.time.wrapping_sub(before.time);
        let time = passed.min(had).max(1);
        let helped = self.lost.wrapping_sub(before.lost).saturating_sub(passed - passed.min(had));
        let helped = helped.min(time);
        let native = |helped: u64| time - (helped + (time - helped) / LOST_IN_CODE).clamp(1, time);
        let break_even = |helped: u64| {
            let native = native(helped);
            times(stop, native, time - native)
        };
        let entries = self.entries.wrapping_sub(before.entries) + 1;
        let average = native(helped) / entries;
        let wanted = break_even(helped.min(time / MAX_HELPED)).saturating_mul(PROMOTE);
        let break_even = break_even(helped).max(stop / LEAST_BREAK_EVEN);
        (Runs { average, break_even }, wanted)
    }
}

/// Why a thread stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It entered the guest's kernel, or needed the interpreter.
    Entry,
    /// Something was not mapped in its space.
    Miss,
    /// Something outside of it.
    Kick,
}

/// What is known of all threads of one processor.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Cycles that a stop costs.
    stop: u64,
    threads: FxHashMap<ThreadKey, Thread>,
    /// Those that are direct.
    direct: Vec<ThreadKey>,
    programs: Programs,
    /// Since when the thread runs that runs now: the last look, or when its address space was
    /// switched to.
    since: Option<Moment>,
    /// Cycles that the processor had had a core for at the last look.
    core: u64,
    pub(crate) counters: Counters,
}

/// Counters since the processor was made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Looks that could tell something.
    pub(crate) looks: u64,
    /// Threads that became direct, and those of them that did as their program was known.
    pub(crate) promotions: u64,
    pub(crate) begun: u64,
    /// Threads that ceased to be, and those of them that kept coming to forbidden pages.
    pub(crate) demotions: u64,
    pub(crate) barred: u64,
}

impl Choice {
    /// Nothing is known yet, except what a stop costs.
    pub(crate) fn new(stop: u64) -> Self {
        Self {
            stop: stop.max(1),
            threads: FxHashMap::default(),
            direct: Vec::new(),
            programs: Programs::default(),
            since: None,
            core: 0,
            counters: Counters::default(),
        }
    }

    /// Whether a thread is to run directly.
    pub(crate) fn is_direct(&self, key: ThreadKey) -> bool {
        self.threads.get(&key).is_some_and(|thread| thread.direct)
    }

    /// Whether a thread must not run directly.
    pub(crate) fn is_banned(&self, key: ThreadKey) -> bool {
        self.threads.get(&key).is_some_and(|thread| thread.banned)
    }

    /// Whether it should be looked at in a while, and not by the way only.
    pub(crate) fn wants_look(&self, key: ThreadKey) -> bool {
        self.threads
            .get(&key)
            .is_none_or(|thread| !thread.direct && !thread.banned && thread.bad < MAX_BAD_LOOKS)
    }

    /// Whether any thread of an address space runs directly; `now` is the time-stamp counter.
    pub(crate) fn any_direct(&mut self, root: u64, now: u64) -> bool {
        let Self { threads, programs, direct, stop, .. } = self;
        direct.retain(|key| {
            let Some(thread) = threads.get_mut(key) else { return false };
            if now.wrapping_sub(thread.seen) >= ABSENCE * *stop {
                (thread.direct, thread.good) = (false, 0);
                if let Some(Origin::Began(page)) = thread.origin.take()
                    && thread.total < WORTH_OF_THE_GONE * *stop
                {
                    programs.judge(page, false);
                }
            }
            thread.direct
        });
        direct.iter().any(|key| key.root == root)
    }

    fn thread(&mut self, key: ThreadKey) -> &mut Thread {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&key) {
            self.threads.clear();
            self.direct.clear();
        }
        let fresh = || Thread { needed: GOOD_LOOKS, ..Thread::default() };
        self.threads.entry(key).or_insert_with(fresh)
    }

    /// Translated code of a thread is running at `now`, on a processor that has had a core for so many
    /// cycles in all, in a page that may have to be asked for. Whether the thread is direct from here
    /// on.
    pub(crate) fn look(
        &mut self,
        key: ThreadKey,
        now: Moment,
        core: u64,
        page: impl FnOnce() -> Option<CodePage>,
    ) -> bool {
        let before = self.since.replace(now);
        let Some(before) = before else {
            self.core = core;
            return false;
        };
        let passed = now.time.wrapping_sub(before.time);
        if passed < LEAST_LOOK * self.stop {
            self.since = Some(before);
            return false;
        }
        let had = core.wrapping_sub(self.core);
        if had < LEAST_LOOK * self.stop {
            self.since = Some(before);
            return false;
        }
        self.core = core;
        self.counters.looks += 1;
        let (runs, wanted) = now.since(before, had, self.stop);
        let clear = runs.average >= CLEAR * self.stop;
        let thread = self.thread(key);
        if thread.banned || runs.average < wanted {
            thread.good = 0;
            thread.bad = thread.bad.saturating_add(1);
            return false;
        }
        thread.bad = 0;
        thread.good += if clear { 2 } else { 1 };
        let (good, needed) = (thread.good, thread.needed);
        if good < needed {
            return false;
        }
        let page = page();
        let rested = needed == LOOKS_AT_REST;
        let is_refuted = |page| self.programs.is_refuted(page);
        if !rested && good < REFUTED_LOOKS && page.is_some_and(is_refuted) {
            return false;
        }
        self.promote(key, runs, page.map(Origin::Found), now.time);
        true
    }

    fn promote(&mut self, key: ThreadKey, runs: Runs, origin: Option<Origin>, now: u64) {
        let Runs { average, break_even } = runs;
        let average = average.min(break_even.saturating_mul(MAX_ADVANCE));
        let cost = self.stop;
        let thread = self.thread(key);
        let Thread { banned, good, needed, .. } = *thread;
        let began = Thread { direct: true, banned, average, break_even, cost, ..Thread::default() };
        *thread = Thread { good, needed, origin, seen: now, ..began };
        self.direct.push(key);
        self.counters.promotions += 1;
    }

    /// Whether something is known of the programs that have this physical page.
    #[inline]
    pub(crate) fn has_program(&self, physical: u64) -> bool {
        self.programs.has(physical)
    }

    /// A thread comes to a page for the first time, as far as we know. Whether it is direct from here
    /// on, because others were that came there.
    pub(crate) fn begin(&mut self, key: ThreadKey, page: CodePage, now: u64) -> bool {
        let thread = self.threads.get(&key);
        if thread.is_some_and(|it| it.direct || it.banned || it.needed > GOOD_LOOKS) {
            return false;
        }
        let Some(runs) = self.programs.recall(page) else { return false };
        self.promote(key, runs, Some(Origin::Began(page.physical)), now);
        self.counters.begun += 1;
        true
    }

    /// The processor has spent so many cycles for a direct thread beside running and stopping it.
    pub(crate) fn spent(&mut self, key: ThreadKey, cycles: u64) {
        let thread = self.thread(key);
        thread.spending = thread.spending.saturating_add(cycles);
    }

    /// A thread has run directly for so many cycles, until `now`. Whether it stays direct.
    pub(crate) fn stopped(&mut self, key: ThreadKey, cycles: u64, now: u64, cause: Cause) -> bool {
        let stop = self.stop;
        let thread = self.thread(key);
        thread.seen = now;
        thread.running += cycles;
        thread.total += cycles;
        let weight = match cause {
            Cause::Kick => None,
            Cause::Entry => Some(WEIGHT),
            Cause::Miss => Some(MISS_WEIGHT),
        };
        if let Some(weight) = weight {
            thread.count_stop(weight, stop);
            if thread.average < thread.dear_break_even(stop) {
                self.demote(key);
                return false;
            }
        }
        if thread.total >= WORTH * stop
            && let Some(origin) = thread.origin.take()
        {
            let average = thread.average.max(thread.break_even.saturating_mul(PROMOTE));
            let runs = Runs { average, break_even: thread.break_even };
            match origin {
                Origin::Found(page) => self.programs.learn(page, runs),
                Origin::Began(page) => self.programs.judge(page, true),
            }
        }
        true
    }

    /// A thread that runs directly has come to a physical page that must not. Whether it stays direct.
    pub(crate) fn barred(&mut self, key: ThreadKey, page: u64, now: u64) -> bool {
        let span = BARRED_SPAN * self.stop;
        let thread = self.thread(key);
        if !thread.barred_pages.contains(&page) {
            thread.barred_pages.rotate_right(1);
            thread.barred_pages[0] = page;
            return self.stopped(key, 0, now, Cause::Entry);
        }
        if thread.barred == 0 || thread.total.wrapping_sub(thread.barred_since) > span {
            (thread.barred, thread.barred_since) = (0, thread.total);
        }
        thread.barred += 1;
        if thread.barred < MAX_BARRED {
            return self.stopped(key, 0, now, Cause::Entry);
        }
        self.counters.barred += 1;
        self.demote(key);
        false
    }

    fn demote(&mut self, key: ThreadKey) {
        let (proven, stop) = (PROVEN * self.stop, self.stop);
        let thread = self.thread(key);
        let kept_to_barred = thread.barred >= MAX_BARRED;
        let again = match () {
            () if thread.was_worth(WORTH_TO_REST, stop) && !kept_to_barred => LOOKS_AT_REST,
            () if thread.total > proven => GOOD_LOOKS,
            () => thread.needed.max(GOOD_LOOKS).saturating_mul(2),
        };
        thread.needed = again.min(MAX_GOOD_LOOKS);
        (thread.direct, thread.good) = (false, 0);
        if let Some(Origin::Began(page)) = thread.origin.take() {
            self.programs.judge(page, false);
        }
        self.counters.demotions += 1;
    }

    /// A thread cannot run directly.
    pub(crate) fn ban(&mut self, key: ThreadKey) {
        let thread = self.thread(key);
        (thread.direct, thread.banned) = (false, true);
    }

    /// Another address space runs from now on.
    pub(crate) fn switched(&mut self, now: Moment) {
        self.since = Some(now);
    }

    /// The last look is too long ago to say anything: the processor was idle, or ran directly.
    pub(crate) fn forget_look(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests;

//! Which of a guest's threads run directly.
//!
//! Direct execution costs a *stop* for every entry into the guest's kernel, some microseconds, and
//! nothing between two of them. Translated code enters the kernel for nothing, and *loses* a share of
//! the time in between: what is spent on misses, look-ups and translating, which is measured
//! (run.rs), and a quarter of the rest, which is an estimate. With a share of g lost, and runs of r
//! cycles between two entries, direct execution takes 1 + stop / r of the time that the program
//! needs and translation 1 / (1 - g): direct is better from r = stop * (1 - g) / g on, the
//! *break-even*.
//!
//! A stop's cost is measured on the host at start-up (calibrate.rs). Of a translated thread we look
//! at every interrupt that comes in user code, the guest's own clock tick mostly: whoever is running
//! then is taken to have run since the tick before, or since the address space was switched, and
//! becomes direct if its runs were [`PROMOTE`] times the break-even. Of a direct thread the runs are known exactly; it is translated
//! again when their average falls below the break-even. So that nobody flaps, each thread that was
//! mistaken for one that computes has to show twice as many good ticks the next time.
//!
//! A thread is told by its address space and FS base, which every thread library has as its own. An
//! address space is told by where its page tables are, where those of another process will be once it
//! is gone. So who was direct and has not been seen for some time is translated, as everybody is at
//! first.

use rustc_hash::FxHashMap;

/// How many times the break-even a thread's runs must be for it to become direct.
const PROMOTE: u64 = 2;

/// One in how many cycles translated code loses in itself.
const LOST_IN_CODE: u64 = 4;

/// How many stops' worth a tick has to look back.
const LEAST_TICK: u64 = 100;

/// Good ticks that make a thread direct, at first and at most. With one, short-lived processes are
/// met by a tick now and then, have a helper made and are gone.
const GOOD_TICKS: u32 = 2;
const MAX_GOOD_TICKS: u32 = 256;

/// A run's share in the average.
const WEIGHT: u64 = 8;

/// A fault that only the helper's own mappings were the reason for weighs less: it maps what is
/// around it as well, and does not come again.
const MISS_WEIGHT: u64 = 64;

/// A thread that stays direct for so many stops' worth was chosen well.
const PROVEN: u64 = 100_000;

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

/// What is known of a thread.
#[derive(Debug, Clone, Copy)]
struct Thread {
    direct: bool,
    /// Never to be direct again: it needs what a helper cannot have.
    banned: bool,
    /// Cycles between two stops, on average, and from which number of them on direct is better.
    average: u64,
    break_even: u64,
    /// Cycles since the last stop.
    running: u64,
    /// Good ticks in a row, and how many it takes.
    good: u32,
    needed: u32,
    /// Cycles since it became direct.
    total: u64,
    /// Time-stamp counter when it last ran directly, or became direct.
    seen: u64,
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
    /// Cycles between two entries since an earlier moment, without what was lost, and the
    /// break-even.
    fn since(self, before: Self, stop: u64) -> (u64, u64) {
        let time = self.time.wrapping_sub(before.time).max(1);
        let helped = self.lost.wrapping_sub(before.lost).min(time);
        let lost = (helped + (time - helped) / LOST_IN_CODE).clamp(1, time);
        let native = time - lost;
        let entries = self.entries.wrapping_sub(before.entries) + 1;
        let break_even = u128::from(stop) * u128::from(native) / u128::from(lost);
        (native / entries, break_even.try_into().unwrap_or(u64::MAX))
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
    /// The last tick.
    last: Option<Moment>,
    /// Threads that became direct, and that ceased to be.
    pub(crate) promotions: u64,
    pub(crate) demotions: u64,
}

impl Choice {
    /// Nothing is known yet, except what a stop costs.
    pub(crate) fn new(stop: u64) -> Self {
        let threads = FxHashMap::default();
        let (stop, direct) = (stop.max(1), Vec::new());
        Self { stop, threads, direct, last: None, promotions: 0, demotions: 0 }
    }

    /// Whether a thread is to run directly.
    pub(crate) fn is_direct(&self, key: ThreadKey) -> bool {
        self.threads.get(&key).is_some_and(|thread| thread.direct)
    }

    /// Whether a thread must not run directly.
    pub(crate) fn is_banned(&self, key: ThreadKey) -> bool {
        self.threads.get(&key).is_some_and(|thread| thread.banned)
    }

    /// Whether any thread of an address space runs directly; `now` is the time-stamp counter.
    pub(crate) fn any_direct(&mut self, root: u64, now: u64) -> bool {
        let (threads, absence) = (&mut self.threads, ABSENCE * self.stop);
        self.direct.retain(|key| {
            let Some(thread) = threads.get_mut(key) else { return false };
            if now.wrapping_sub(thread.seen) >= absence {
                (thread.direct, thread.good) = (false, 0);
            }
            thread.direct
        });
        self.direct.iter().any(|key| key.root == root)
    }

    fn thread(&mut self, key: ThreadKey) -> &mut Thread {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&key) {
            self.threads.clear();
            self.direct.clear();
        }
        self.threads.entry(key).or_insert(Thread {
            direct: false,
            banned: false,
            average: 0,
            break_even: 0,
            running: 0,
            good: 0,
            needed: GOOD_TICKS,
            total: 0,
            seen: 0,
        })
    }

    /// An interrupt came while translated code of a thread was running. Whether the thread is direct
    /// from here on.
    pub(crate) fn tick(&mut self, key: ThreadKey, now: Moment) -> bool {
        let Some(before) = self.last.replace(now) else { return false };
        if now.time.wrapping_sub(before.time) < LEAST_TICK * self.stop {
            self.last = Some(before);
            return false;
        }
        let (average, break_even) = now.since(before, self.stop);
        let thread = self.thread(key);
        if thread.banned || average < break_even.saturating_mul(PROMOTE) {
            thread.good = 0;
            return false;
        }
        thread.good += 1;
        if thread.good < thread.needed {
            return false;
        }
        let seen = now.time;
        *thread =
            Thread { direct: true, average, break_even, running: 0, total: 0, seen, ..*thread };
        self.direct.push(key);
        self.promotions += 1;
        true
    }

    /// A thread has run directly for so many cycles, until `now`. Whether it stays direct.
    pub(crate) fn stopped(&mut self, key: ThreadKey, cycles: u64, now: u64, cause: Cause) -> bool {
        let thread = self.thread(key);
        thread.seen = now;
        thread.running += cycles;
        thread.total += cycles;
        let weight = match cause {
            Cause::Kick => return true,
            Cause::Entry => WEIGHT,
            Cause::Miss => MISS_WEIGHT,
        };
        let run = std::mem::take(&mut thread.running);
        thread.average = thread.average - thread.average / weight + run / weight;
        if thread.average >= thread.break_even {
            return true;
        }
        self.demote(key);
        false
    }

    fn demote(&mut self, key: ThreadKey) {
        let proven = PROVEN * self.stop;
        let thread = self.thread(key);
        let again =
            if thread.total > proven { GOOD_TICKS } else { thread.needed.saturating_mul(2) };
        thread.needed = again.min(MAX_GOOD_TICKS);
        (thread.direct, thread.good) = (false, 0);
        self.demotions += 1;
    }

    /// A thread cannot run directly.
    pub(crate) fn ban(&mut self, key: ThreadKey) {
        let thread = self.thread(key);
        (thread.direct, thread.banned) = (false, true);
    }

    /// Another address space runs from now on.
    pub(crate) fn switched(&mut self, now: Moment) {
        self.last = Some(now);
    }

    /// The last tick is too long ago to say anything: the processor was idle, or ran directly.
    pub(crate) fn forget_tick(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: u64 = 1000;

    fn moment(time: u64, entries: u64) -> Moment {
        Moment { time, entries, lost: 0 }
    }

    const THREAD: ThreadKey = ThreadKey { root: 0x1000, fs_base: 7 };

    fn tick_until_direct(choice: &mut Choice, time: &mut u64) -> u32 {
        (1..=MAX_GOOD_TICKS + 1)
            .find(|_| {
                *time += 1_000_000;
                choice.tick(THREAD, moment(*time, 0))
            })
            .expect("a thread that computes becomes direct")
    }

    #[test]
    fn who_computes_becomes_direct_and_who_enters_the_kernel_does_not() {
        let mut choice = Choice::new(STOP);
        for tick in 0..100 {
            assert!(!choice.tick(THREAD, moment(tick * 1_000_000, tick * 500)));
        }
        assert!(!choice.is_direct(THREAD));
        let mut time = 1_000_000_000;
        choice.forget_tick();
        assert_eq!(tick_until_direct(&mut choice, &mut time), GOOD_TICKS + 1);
        assert!(choice.any_direct(THREAD.root, time) && !choice.any_direct(0x2000, time));
    }

    #[test]
    fn who_has_to_be_helped_much_becomes_direct_sooner() {
        let direct = |lost: u64| {
            let mut choice = Choice::new(STOP);
            (0..10).any(|tick| {
                let now = Moment { time: tick * 1_000_000, entries: tick * 400, lost: tick * lost };
                choice.tick(THREAD, now)
            })
        };
        assert!(!direct(0) && !direct(200_000));
        assert!(direct(800_000));
    }

    #[test]
    fn short_runs_end_it_and_it_is_harder_to_become_direct_again() {
        let mut choice = Choice::new(STOP);
        let mut time = 0;
        let first = tick_until_direct(&mut choice, &mut time);
        assert!(choice.stopped(THREAD, 1, time, Cause::Kick));
        let stops = (1..1000).find(|_| !choice.stopped(THREAD, STOP, time, Cause::Entry));
        assert!(stops.is_some_and(|stops| stops > 8));
        assert!(!choice.is_direct(THREAD));
        choice.forget_tick();
        assert!(tick_until_direct(&mut choice, &mut time) > first);
        // Long runs keep it.
        for _ in 0..1000 {
            assert!(choice.stopped(THREAD, 100 * STOP, time, Cause::Entry));
        }
    }

    #[test]
    fn who_has_not_been_seen_for_long_is_direct_no_more() {
        let mut choice = Choice::new(STOP);
        let mut time = 0;
        tick_until_direct(&mut choice, &mut time);
        assert!(choice.any_direct(THREAD.root, time + (ABSENCE - 1) * STOP));
        time += ABSENCE * STOP;
        assert!(!choice.any_direct(THREAD.root, time) && !choice.is_direct(THREAD));
        // It becomes direct again as it did at first.
        choice.forget_tick();
        assert_eq!(tick_until_direct(&mut choice, &mut time), GOOD_TICKS + 1);
    }

    #[test]
    fn a_banned_thread_is_never_direct() {
        let mut choice = Choice::new(STOP);
        choice.ban(THREAD);
        for tick in 0..1000 {
            assert!(!choice.tick(THREAD, moment(tick * 1_000_000, 0)));
        }
        assert!(choice.is_banned(THREAD));
    }
}

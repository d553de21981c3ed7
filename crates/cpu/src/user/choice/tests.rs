//! What a processor finds out about threads that are looked at, and that run directly.

use super::*;

const STOP: u64 = 1000;

const THREAD: ThreadKey = ThreadKey { root: 0x1000, fs_base: 7 };
const PAGE: CodePage = CodePage { physical: 0x7000, hash: 1 };

/// A span between two looks: what a timer leaves in between.
const SPAN: u64 = 1_000_000;

/// A processor of which one thread is looked at again and again.
struct Clock {
    choice: Choice,
    now: Moment,
    core: u64,
}

impl Clock {
    fn new() -> Self {
        Self { choice: Choice::new(STOP), now: Moment::default(), core: 0 }
    }

    fn look(&mut self, key: ThreadKey, span: Moment, had: u64) -> bool {
        self.now.time += span.time;
        self.now.entries += span.entries;
        self.now.lost += span.lost;
        self.core += had;
        self.choice.look(key, self.now, self.core, || Some(PAGE))
    }

    /// So many entries, on a core all the time.
    fn enters(&mut self, entries: u64) -> bool {
        self.look(THREAD, Moment { time: SPAN, entries, lost: 0 }, SPAN)
    }

    fn looks_until_direct(&mut self, entries: u64) -> u32 {
        let count = (1..=MAX_GOOD_LOOKS + 1).find(|_| self.enters(entries));
        count.expect("a thread that computes becomes direct")
    }

    fn runs(&mut self, cycles: u64, cause: Cause) -> bool {
        self.now.time += cycles;
        self.choice.stopped(THREAD, cycles, self.now.time, cause)
    }

    fn begins_as(&mut self, root: u64, page: CodePage) -> bool {
        self.choice.begin(ThreadKey { root, ..THREAD }, page, self.now.time)
    }
}

/// One who has found out that threads that come to [`PAGE`] compute.
fn who_knows_a_program() -> Clock {
    let mut clock = Clock::new();
    clock.looks_until_direct(0);
    assert!(!clock.choice.has_program(PAGE.physical), "it has to prove true first");
    assert!(clock.runs(WORTH * STOP, Cause::Entry));
    assert!(clock.choice.has_program(PAGE.physical));
    clock
}

#[test]
fn who_computes_becomes_direct_and_who_enters_the_kernel_does_not() {
    let mut clock = Clock::new();
    for _ in 0..100 {
        assert!(!clock.enters(500));
    }
    assert!(!clock.choice.is_direct(THREAD));
    clock.choice.forget_look();
    // The first look has nothing to compare with; one without an entry is enough.
    assert_eq!(clock.looks_until_direct(0), 2);
    let (now, root) = (clock.now.time, THREAD.root);
    assert!(clock.choice.any_direct(root, now) && !clock.choice.any_direct(0x2000, now));
    // With some entries it takes two.
    assert_eq!(Clock::new().looks_until_direct(SPAN / (20 * STOP)), 3);
}

#[test]
fn who_has_to_be_helped_much_becomes_direct_sooner() {
    let direct = |lost: u64| {
        let mut clock = Clock::new();
        let span = Moment { time: SPAN, entries: 120, lost };
        (0..10).any(|_| clock.look(THREAD, span, SPAN))
    };
    assert!(!direct(0) && !direct(50_000));
    assert!(direct(400_000));
    // But no more than half of it counts, and what is left of the time is what there is to win.
    assert!(!direct(900_000));
}

#[test]
fn time_without_a_core_is_no_computing() {
    let mut clock = Clock::new();
    // Ten milliseconds pass, of which it has one, with as many entries as make it no good.
    let span = Moment { time: 10 * SPAN, entries: 200, lost: 0 };
    (0..100).for_each(|_| assert!(!clock.look(THREAD, span, SPAN)));
    // With all of them it would be.
    assert!((0..3).any(|_| clock.look(THREAD, span, 10 * SPAN)));
    // It was away while it was being helped: neither did it need so much help.
    let mut clock = Clock::new();
    let span = Moment { time: 10 * SPAN, entries: 200, lost: 9 * SPAN + SPAN / 10 };
    (0..100).for_each(|_| assert!(!clock.look(THREAD, span, SPAN)));
    // And what has had next to nothing of a core tells nothing.
    let mut clock = Clock::new();
    let span = Moment { time: 10 * SPAN, entries: 0, lost: 0 };
    (0..LEAST_LOOK).for_each(|_| assert!(!clock.look(THREAD, span, STOP)));
    assert_eq!(clock.choice.counters.looks, 0);
}

#[test]
fn another_address_space_begins_anew() {
    let mut clock = Clock::new();
    for _ in 0..100 {
        clock.enters(0);
        clock.now.time += SPAN / 2;
        clock.choice.switched(clock.now);
        clock.now.time += STOP;
        let other = ThreadKey { root: 0x2000, ..THREAD };
        assert!(!clock.look(other, Moment::default(), 0), "it has not run for long");
        clock.choice.forget_look();
    }
}

#[test]
fn who_does_not_compute_is_looked_at_by_the_way_only() {
    let mut clock = Clock::new();
    assert!(clock.choice.wants_look(THREAD));
    let bad = (0..100).take_while(|_| {
        clock.enters(500);
        clock.choice.wants_look(THREAD)
    });
    assert_eq!(bad.count() as u32, MAX_BAD_LOOKS);
    // Until it is seen to compute.
    assert!(!clock.enters(SPAN / (20 * STOP)) && clock.choice.wants_look(THREAD));
    assert!(clock.enters(0) && !clock.choice.wants_look(THREAD));
}

#[test]
fn short_runs_end_it_and_it_is_harder_to_become_direct_again() {
    let mut clock = Clock::new();
    let first = clock.looks_until_direct(0);
    assert!(clock.runs(1, Cause::Kick));
    let stops = (1..1000).find(|_| !clock.runs(STOP / 2, Cause::Entry));
    assert!(stops.is_some_and(|stops: u64| stops > WEIGHT));
    assert!(!clock.choice.is_direct(THREAD));
    clock.choice.forget_look();
    assert!(clock.looks_until_direct(0) > first);
    // Long runs keep it.
    for _ in 0..1000 {
        assert!(clock.runs(100 * STOP, Cause::Entry));
    }
}

#[test]
fn who_computed_before_its_runs_became_short_is_back_at_the_first_good_look() {
    // Long runs, as many as are worth all stops or only half as many, and then short ones.
    let looks = |long_runs: u64| {
        let mut clock = Clock::new();
        clock.looks_until_direct(0);
        (0..long_runs).for_each(|_| assert!(clock.runs(20 * STOP, Cause::Entry)));
        let short_runs = (1..1000).find(|_| !clock.runs(STOP / 10, Cause::Entry));
        assert!(short_runs.is_some_and(|runs: u64| (50..150).contains(&runs)), "{short_runs:?}");
        clock.choice.forget_look();
        clock.enters(0);
        // While its runs are short it stays as it is.
        assert!((0..100).all(|_| !clock.enters(500)));
        (1..100).find(|_| clock.enters(SPAN / (20 * STOP)))
    };
    assert_eq!(looks(20), Some(1));
    assert_eq!(looks(1), Some(2 * GOOD_LOOKS));
}

#[test]
fn who_rests_may_begin_directly_elsewhere_and_is_found_in_any_page() {
    let mut clock = who_knows_a_program();
    assert!((0..1000).any(|_| !clock.runs(1, Cause::Entry)));
    assert!(clock.begins_as(THREAD.root, PAGE));
    // A thread that has just computed is no guess: that its page tells nothing does not matter.
    clock.choice.programs.judge(PAGE.physical, false);
    clock.choice.programs.judge(PAGE.physical, false);
    assert!(clock.runs(1000 * STOP, Cause::Entry));
    assert!((0..1000).any(|_| !clock.runs(1, Cause::Entry)));
    clock.choice.forget_look();
    clock.enters(0);
    assert!(clock.enters(SPAN / (20 * STOP)));
}

#[test]
fn who_keeps_coming_to_forbidden_pages_is_direct_no_more() {
    let barred = |pages: u64, between: u64| {
        let mut clock = Clock::new();
        clock.looks_until_direct(0);
        (1..100).find(|turn| {
            // Long runs, so that their average is no reason.
            assert!(clock.runs(between, Cause::Miss));
            !clock.choice.barred(THREAD, 0x1000 * (1 + turn % pages), clock.now.time)
        })
    };
    // The first stop at each page does not count.
    assert_eq!(barred(1, 5 * STOP), Some(u64::from(MAX_BARRED) + 1));
    assert_eq!(barred(3, 5 * STOP), Some(u64::from(MAX_BARRED) + 3));
    assert_eq!(barred(1, 20 * STOP), None, "now and then does no harm");
    assert_eq!(barred(50, 5 * STOP), None, "nor do many pages");
}

#[test]
fn who_has_not_been_seen_for_long_is_direct_no_more() {
    let mut clock = Clock::new();
    clock.looks_until_direct(0);
    let (now, root) = (clock.now.time, THREAD.root);
    assert!(clock.choice.any_direct(root, now + (ABSENCE - 1) * STOP));
    assert!(!clock.choice.any_direct(root, now + ABSENCE * STOP));
    assert!(!clock.choice.is_direct(THREAD));
    // It becomes direct again as it did at first.
    clock.choice.forget_look();
    assert_eq!(clock.looks_until_direct(0), 2);
}

#[test]
fn a_program_that_computed_begins_directly() {
    let mut clock = who_knows_a_program();
    for root in 2..100 {
        assert!(clock.begins_as(root << 12, PAGE));
        let key = ThreadKey { root: root << 12, ..THREAD };
        assert!(clock.choice.is_direct(key));
        // It does once.
        assert!(!clock.begins_as(root << 12, PAGE));
        assert!(clock.choice.stopped(key, WORTH * STOP, clock.now.time, Cause::Entry));
    }
    assert_eq!(clock.choice.counters.begun, 98);
    // Other pages tell nothing, and what is in this one now may be another program.
    assert!(!clock.begins_as(100 << 12, CodePage { physical: 0x8000, ..PAGE }));
    assert!(!clock.begins_as(100 << 12, CodePage { hash: 2, ..PAGE }));
    assert!(!clock.begins_as(100 << 12, PAGE) && !clock.choice.has_program(PAGE.physical));
}

#[test]
fn a_program_is_forgotten_when_its_threads_do_not_compute() {
    let mut clock = who_knows_a_program();
    let begun = (2..100).take_while(|root| {
        let begins = clock.begins_as(root << 12, PAGE);
        let key = ThreadKey { root: root << 12, ..THREAD };
        let now = clock.now.time;
        assert!(!begins || (0..1000).any(|_| !clock.choice.stopped(key, 1, now, Cause::Entry)));
        begins
    });
    assert_eq!(begun.count(), 2);
    // To be found to compute takes longer there from then on.
    let mut looks = 1..100;
    clock.choice.forget_look();
    let key = ThreadKey { root: 0x10_0000, ..THREAD };
    let span = Moment { time: SPAN, ..Moment::default() };
    let first = looks.find(|_| clock.look(key, span, SPAN));
    assert_eq!(first, Some(1 + REFUTED_LOOKS / 2));
}

#[test]
fn a_program_is_forgotten_when_its_threads_are_short_lived() {
    let mut clock = who_knows_a_program();
    let begun = (2..100).take_while(|root| {
        let begins = clock.begins_as(root << 12, PAGE);
        clock.now.time += ABSENCE * STOP;
        clock.choice.any_direct(0, clock.now.time);
        begins
    });
    assert_eq!(begun.count(), 2);
}

#[test]
fn a_thread_that_was_mistaken_does_not_begin_again() {
    let mut clock = who_knows_a_program();
    let key = ThreadKey { root: 0x2000, ..THREAD };
    assert!(clock.begins_as(key.root, PAGE));
    let now = clock.now.time;
    assert!((0..1000).any(|_| !clock.choice.stopped(key, 1, now, Cause::Entry)));
    assert!(clock.choice.has_program(PAGE.physical));
    assert!(!clock.begins_as(key.root, PAGE));
}

#[test]
fn a_banned_thread_is_never_direct() {
    let mut clock = who_knows_a_program();
    clock.choice.ban(THREAD);
    (0..1000).for_each(|_| assert!(!clock.enters(0)));
    assert!(!clock.begins_as(THREAD.root, PAGE));
    assert!(clock.choice.is_banned(THREAD) && !clock.choice.wants_look(THREAD));
}

#[test]
fn a_thread_whose_stops_cost_more_than_they_are_worth_is_translated_again() {
    let stops_until_translated = |spent: u64| {
        let mut clock = Clock::new();
        clock.looks_until_direct(0);
        (0..1000).find(|_| {
            clock.choice.spent(THREAD, spent);
            !clock.runs(8 * STOP, Cause::Entry)
        })
    };
    assert_eq!(stops_until_translated(0), None, "a stop in eight stops' time is worth it");
    assert!(stops_until_translated(15 * STOP).is_some_and(|stops| stops < 100));
    // One that took very long is the host's doing.
    let mut clock = Clock::new();
    clock.looks_until_direct(0);
    clock.choice.spent(THREAD, 100_000 * STOP);
    assert!((0..1000).all(|_| clock.runs(8 * STOP, Cause::Entry)));
}

//! Which programs compute: what was learnt of a thread stays when its process is gone.
//!
//! A compiler is started anew for each file, and each of its processes would have to be watched for a
//! while before it ran directly. But all of them execute the same physical pages, because a page
//! cache keeps a program's text. So the page whose code was running when a thread was found to compute
//! stands for the program: who comes to it first in a new address space is direct at once.
//!
//! 1. *It is a guess*, which costs time where it is wrong and nothing else. What it comes to
//!    is counted: a program begins with [`TRUST`], and each thread that began directly and was not worth it
//!    takes some of that away, each that was gives some back. Without any left it begins as any
//!    other does, and is not learnt again either: a page of a shared library, say, which is in all of them.
//! 2. *A page that has other contents is another program.* Its bytes are compared by their hash where it would
//!    begin, which is once per page and process, so that nobody has to tell who wrote it.
//! 3. *There is a limit*: the page that has not been of use for longest goes first.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};

/// Programs that are remembered.
const MAX_PROGRAMS: usize = 512;

/// What is believed of a program at first, and at most.
const TRUST: u32 = 4;
const MAX_TRUST: u32 = 8;

/// What one that was not worth it takes away, where one that was gives one: a page that half of all programs
/// have in common is none to go by.
const DOUBT: u32 = 2;

/// The page whose code a thread runs: its physical address, and a hash of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodePage {
    pub(crate) physical: u64,
    pub(crate) hash: u64,
}

impl CodePage {
    pub(crate) fn new(physical: u64, bytes: &[u8]) -> Self {
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        Self { physical, hash: hasher.finish() }
    }
}

/// What its threads were like when one of them was found to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Cycles between two stops, on average, and from which number of them on direct is better.
    pub(crate) average: u64,
    pub(crate) break_even: u64,
}

#[derive(Debug, Clone, Copy)]
struct Program {
    hash: u64,
    runs: Runs,
    trust: u32,
    used: u64,
}

/// Programs, by the physical page that stands for each.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    known: FxHashMap<u64, Program>,
    clock: u64,
}

impl Programs {
    /// Whether anything is known of a physical page.
    #[inline]
    pub(crate) fn has(&self, physical: u64) -> bool {
        !self.known.is_empty() && self.known.contains_key(&physical)
    }

    /// A thread that was executing this page computes.
    pub(crate) fn learn(&mut self, page: CodePage, runs: Runs) {
        if self.forget_other(page) {
            return;
        }
        if self.known.len() >= MAX_PROGRAMS {
            let oldest = self.known.iter().min_by_key(|(_, program)| program.used);
            if let Some(oldest) = oldest.map(|(&physical, _)| physical) {
                self.known.remove(&oldest);
            }
        }
        let (hash, used) = (page.hash, self.tick());
        self.known.insert(page.physical, Program { hash, runs, trust: TRUST, used });
    }

    /// What threads are like that come to this page, if they compute.
    pub(crate) fn recall(&mut self, page: CodePage) -> Option<Runs> {
        if !self.forget_other(page) {
            return None;
        }
        let used = self.tick();
        let program = self.known.get_mut(&page.physical)?;
        program.used = used;
        (program.trust > 0).then_some(program.runs)
    }

    /// Whether threads that come to this page were taken for such that compute, in vain.
    pub(crate) fn is_refuted(&self, page: CodePage) -> bool {
        let program = self.known.get(&page.physical);
        program.is_some_and(|program| program.hash == page.hash && program.trust == 0)
    }

    /// A thread that began directly was worth it, or was not.
    pub(crate) fn judge(&mut self, physical: u64, was_worth_it: bool) {
        let Some(program) = self.known.get_mut(&physical) else { return };
        program.trust = match was_worth_it {
            true => (program.trust + 1).min(MAX_TRUST),
            false => program.trust.saturating_sub(DOUBT),
        };
    }

    /// Forget a page that has other contents now; whether anything is known of it still.
    fn forget_other(&mut self, page: CodePage) -> bool {
        let Some(program) = self.known.get(&page.physical) else { return false };
        if program.hash == page.hash {
            return true;
        }
        self.known.remove(&page.physical);
        false
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: Runs = Runs { average: 100, break_even: 10 };

    fn page(physical: u64) -> CodePage {
        CodePage::new(physical, &physical.to_le_bytes())
    }

    #[test]
    fn a_page_is_remembered_until_it_changes() {
        let mut programs = Programs::default();
        assert!(programs.recall(page(0x1000)).is_none());
        programs.learn(page(0x1000), RUNS);
        assert_eq!(programs.recall(page(0x1000)), Some(RUNS));
        assert!(programs.has(0x1000) && !programs.has(0x2000));
        let changed = CodePage::new(0x1000, b"something else");
        assert_eq!(programs.recall(changed), None);
        assert!(!programs.has(0x1000));
    }

    #[test]
    fn who_was_not_worth_it_twice_is_not_believed_again() {
        let mut programs = Programs::default();
        programs.learn(page(0x1000), RUNS);
        programs.judge(0x1000, false);
        assert!(programs.recall(page(0x1000)).is_some() && !programs.is_refuted(page(0x1000)));
        programs.judge(0x1000, false);
        assert!(programs.recall(page(0x1000)).is_none() && programs.is_refuted(page(0x1000)));
        programs.learn(page(0x1000), RUNS);
        assert!(programs.recall(page(0x1000)).is_none(), "it is not learnt again");
        // But what is there later is another program.
        let other = CodePage::new(0x1000, b"another");
        programs.learn(other, RUNS);
        assert!(programs.recall(other).is_some() && !programs.is_refuted(other));
    }

    #[test]
    fn who_was_worth_it_may_err_more_often() {
        let mut programs = Programs::default();
        programs.learn(page(0x1000), RUNS);
        (0..10).for_each(|_| programs.judge(0x1000, true));
        for _ in 0..MAX_TRUST / DOUBT {
            assert!(programs.recall(page(0x1000)).is_some());
            programs.judge(0x1000, false);
        }
        assert!(programs.recall(page(0x1000)).is_none());
    }

    #[test]
    fn who_has_not_been_of_use_for_longest_goes_first() {
        let mut programs = Programs::default();
        let pages = MAX_PROGRAMS as u64;
        (0..pages).for_each(|number| programs.learn(page(number << 12), RUNS));
        assert!(programs.recall(page(0)).is_some());
        programs.learn(page(pages << 12), RUNS);
        assert!(programs.has(0) && !programs.has(1 << 12) && programs.has(pages << 12));
        assert_eq!(programs.known.len(), MAX_PROGRAMS);
    }
}

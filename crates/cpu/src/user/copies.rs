//! Copies of pages for helpers to execute, in which forbidden instructions fault (page.rs).
//!
//! Hot code shares pages with CPUID more often than one would think: in programs that are linked
//! statically the C library's start-up code lies beside the jumps to `memcpy` and its kin, and a program with
//! a function for each kind of processor has the choice among them close by. So helpers map a copy of such a
//! page in its place: a program that reads its own code there sees HLT
//! where CPUID is, and nothing else is different.
//!
//! 1. A copy is made while its page has translations, holding the translator, like a translation:
//!    no vCPU writes the page meanwhile. It is dropped when the page is written, and when the page
//!    loses its last translation, after which writes would not be noticed.
//! 2. The vCPU that drops a copy revokes it from the helpers of every vCPU
//!    ([`Revocable`](super::revocable::Revocable)); a helper that is running is stopped soon, as is a
//!    vCPU that executes a translation that was dropped.
//! 3. Copies lie in spare pages of guest memory's file. A spare page is used once; when there are no
//!    more, forbidden pages stay forbidden.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use locks::Unpoisoned;
use rustc_hash::FxHashMap;

use super::page::Forbidden;
use crate::memory::Physical;
use crate::memory::ram::Ram;

/// The outcome of an attempt to copy a page.
#[derive(Debug, Clone, Copy)]
enum Attempt {
    /// It is in this spare page.
    Made(usize),
    /// Not enough was known when the page had so many translations.
    Failed(usize),
}

/// The copies of one machine.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    state: Mutex<State>,
    /// Whether there is any.
    any: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// By physical page.
    attempts: FxHashMap<u64, Attempt>,
    /// Spare pages used.
    used: usize,
}

impl Copies {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// The spare page with the copy of a page, if there is one.
    pub(crate) fn find(&self, page: Physical) -> Option<usize> {
        if !self.any.load(Ordering::SeqCst) {
            return None;
        }
        match self.state().attempts.get(&page.0) {
            Some(Attempt::Made(spare)) => Some(*spare),
            _ => None,
        }
    }

    /// Copy a page, which no vCPU can write without dropping its copy ([`VcpuGroup::is_protected`]), if enough is
    /// known about it.
    ///
    /// [`VcpuGroup::is_protected`]: crate::vcpu_group::VcpuGroup::is_protected
    pub(crate) fn make(
        &self,
        starts: Vec<usize>,
        ram: &Ram,
        memory: &host::GuestMemory,
        forbidden: Forbidden,
        page: Physical,
    ) {
        let mut state = self.state();
        match state.attempts.get(&page.0) {
            Some(Attempt::Made(_)) => return,
            Some(Attempt::Failed(known)) if *known == starts.len() => return,
            _ => {}
        }
        // No vCPU writes it while it has translations and this thread holds the translator's lock. A device that
        // writes it drops the copy afterwards (vcpu_group.rs), whatever has been copied.
        let Some(bytes) = ram.copy_page(page) else { return };
        let (spare, count) = (state.used, starts.len());
        let copy = forbidden.defused(&bytes, starts).filter(|_| spare < host::SPARE_PAGES);
        let made = copy.is_some_and(|copy| memory.write_spare(spare, &copy).is_ok());
        let attempt = if made { Attempt::Made(spare) } else { Attempt::Failed(count) };
        state.attempts.insert(page.0, attempt);
        if made {
            state.used += 1;
            self.any.store(true, Ordering::SeqCst);
        }
    }

    /// Drop the copy of a page; whether there was one.
    pub(crate) fn drop_copy(&self, page: Physical) -> bool {
        self.any.load(Ordering::SeqCst)
            && matches!(self.state().attempts.remove(&page.0), Some(Attempt::Made(_)))
    }

    /// Drop all copies.
    pub(crate) fn drop_all(&self) {
        self.state().attempts.clear();
    }
}

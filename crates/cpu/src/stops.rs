//! Where a debugger outside stops the guest: breakpoints, watchpoints and single steps, none of which the guest sees.
//!
//! Nothing is planted in guest memory, and the guest's debug registers and RFLAGS.TF stay its own: its own debugger
//! works beside this one (system/debug.rs). All of it lies in how the guest is executed.
//!
//! 1. *Translated code has no checks.* A breakpoint is a property of translation. Call an address *suspect* if it has
//!    the same offset in its page as some breakpoint. A block ends before a suspect address, and nothing leads to a
//!    block that begins at one: no link, no line of a jump cache, no landing. Each time execution gets there it comes
//!    back to Rust, which compares the linear address, whatever the block's own is (user code is relocatable, so that
//!    one block runs at many addresses). What is suspect and no breakpoint goes on from there.
//! 2. *Blocks of before are dropped when a breakpoint is set* ([`Translator::cut`](crate::translate::Translator)),
//!    and only those over it. When one is removed, its blocks stay as they are: shorter than they might be, and right.
//!    (gdb removes and sets all breakpoints each time that the guest stops.)
//! 3. *User code that runs directly*: a page with a breakpoint is not executable in helpers, as one with forbidden
//!    instructions (user/page.rs). Its code is translated, and rule 1 holds.
//! 4. *A breakpoint comes after the interrupts that wait at its instruction*, as an instruction breakpoint of the
//!    processor's does (SDM 3A table 6-2), and before the instruction. It is hit again each time that the guest comes
//!    there or goes on from there: who debugs steps over it first.
//! 5. *While there is a watchpoint, all code is interpreted*, as while the guest has breakpoints in its own debug
//!    registers: each access of an instruction is seen where these are served. The guest stops behind the instruction.
//!    What a device writes, and what the processor's page walks write, is not seen, as in hardware.
//! 6. *A step is one instruction of the interpreter's*, with the exits that it needs, or one repetition of a string
//!    instruction. Interrupts wait meanwhile: whoever steps through a kernel wants its code, and not its timer's. They
//!    do not wait where the processor has halted; the step is done when one has been delivered.

use std::sync::Arc;

use crate::memory::{Access, Linear, PAGE_SIZE, Physical};

/// Which accesses a watchpoint is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchKind {
    /// Writes.
    Write,
    /// Reads.
    Read,
    /// Both.
    Access,
}

/// A range of linear addresses that is watched, in every address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watchpoint {
    /// The first byte.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// What for.
    pub kind: WatchKind,
}

impl Watchpoint {
    fn concerns(&self, at: Linear, size: usize) -> bool {
        // Distances, because addresses wrap.
        let (ahead, behind) = (at.0.wrapping_sub(self.start), self.start.wrapping_sub(at.0));
        size > 0 && self.length > 0 && (ahead < self.length || behind < size as u64)
    }

    fn is_for(&self, access: Access) -> bool {
        match self.kind {
            WatchKind::Write => access == Access::Write,
            WatchKind::Read => access == Access::Read,
            WatchKind::Access => true,
        }
    }
}

/// Where the vCPUs of a machine are to stop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stops {
    /// Linear addresses of instructions, in ascending order.
    pub(crate) breakpoints: Vec<u64>,
    watchpoints: Vec<Watchpoint>,
}

impl Stops {
    /// At these linear addresses of instructions, in whatever order, and at these accesses.
    #[must_use]
    pub fn new(mut breakpoints: Vec<u64>, watchpoints: Vec<Watchpoint>) -> Self {
        breakpoints.sort_unstable();
        breakpoints.dedup();
        Self { breakpoints, watchpoints }
    }

    pub(crate) fn has_breakpoint(&self, at: u64) -> bool {
        self.breakpoints.binary_search(&at).is_ok()
    }

    fn is_empty(&self) -> bool {
        self.breakpoints.is_empty() && self.watchpoints.is_empty()
    }
}

/// Why a vCPU has stopped for a debugger ([`crate::Exit::Debug`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Its step is done.
    Step,
    /// There is a breakpoint at its next instruction.
    Breakpoint,
    /// It has accessed what is watched, at this linear address.
    Watchpoint(WatchKind, u64),
}

/// A set of offsets in a page, a bit for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offsets([u64; PAGE_SIZE as usize / 64]);

impl Offsets {
    const NONE: Self = Self([0; PAGE_SIZE as usize / 64]);

    pub(crate) fn of(addresses: &[u64]) -> Self {
        let mut offsets = Self::NONE;
        for address in addresses {
            let offset = (address % PAGE_SIZE) as usize;
            offsets.0[offset / 64] |= 1 << (offset % 64);
        }
        offsets
    }

    fn has(&self, offset: u64) -> bool {
        let offset = (offset % PAGE_SIZE) as usize;
        self.0[offset / 64] & 1 << (offset % 64) != 0
    }

    /// Whether one of them is in so many bytes, which do not leave the page.
    pub(crate) fn are_in(&self, at: Physical, length: u64) -> bool {
        (0..length).any(|byte| self.has(at.offset() + byte))
    }
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    None,
    Wanted,
    Done,
}

/// What one vCPU knows of a debugger.
#[derive(Debug)]
pub(crate) struct Debugging {
    /// There is something to stop at. Nothing else need be looked at where there is not.
    pub(crate) is_active: bool,
    pub(crate) stops: Arc<Stops>,
    /// Which offsets are suspect.
    pub(crate) suspect: Offsets,
    pub(crate) step: Step,
    /// What the instruction at hand has accessed that is watched.
    pub(crate) hit: Option<(WatchKind, u64)>,
    pub(crate) stopped: Option<Stopped>,
}

impl Debugging {
    /// Without a debugger.
    pub(crate) fn none() -> Self {
        Self {
            is_active: false,
            stops: Arc::default(),
            suspect: Offsets::NONE,
            step: Step::None,
            hit: None,
            stopped: None,
        }
    }

    pub(crate) fn note_active(&mut self) {
        self.is_active = self.step != Step::None || !self.stops.is_empty();
    }

    /// Whether a block must begin at an address, with nothing that leads to it.
    #[inline]
    pub(crate) fn is_suspect(&self, at: u64) -> bool {
        self.is_active && self.suspect.has(at)
    }

    /// Whether there is a breakpoint at an address.
    #[inline]
    pub(crate) fn breaks_at(&self, at: u64) -> bool {
        self.is_suspect(at) && self.stops.has_breakpoint(at)
    }

    /// Whether there is one in a page.
    pub(crate) fn breaks_in(&self, page: Linear) -> bool {
        let first = page.page().0;
        self.is_active && {
            let from = self.stops.breakpoints.partition_point(|&at| at < first);
            self.stops.breakpoints.get(from).is_some_and(|at| at - first < PAGE_SIZE)
        }
    }

    /// Whether every access is to be seen.
    #[inline]
    pub(crate) fn watches(&self) -> bool {
        self.is_active && !self.stops.watchpoints.is_empty()
    }

    /// Whether something in these bytes is watched.
    pub(crate) fn is_watched(&self, at: Linear, size: usize) -> bool {
        self.watches() && self.stops.watchpoints.iter().any(|one| one.concerns(at, size))
    }

    /// An instruction accesses so many bytes.
    pub(crate) fn note_access(&mut self, at: Linear, size: usize, access: Access) {
        let hit = |one: &&Watchpoint| one.is_for(access) && one.concerns(at, size);
        if let Some(hit) = self.stops.watchpoints.iter().find(hit) {
            // The first byte of what is accessed that is watched.
            let first = if hit.start.wrapping_sub(at.0) < size as u64 { hit.start } else { at.0 };
            self.hit.get_or_insert((hit.kind, first));
        }
    }

    /// Whether the instruction at hand has accessed what is watched.
    pub(crate) fn has_hit(&self) -> bool {
        self.hit.is_some()
    }

    /// An instruction begins, or has not happened.
    #[inline]
    pub(crate) fn forget_hit(&mut self) {
        self.hit = None;
    }

    pub(crate) fn is_stepping(&self) -> bool {
        self.step == Step::Wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_compared_byte_by_byte() {
        let watched = |start, length| Watchpoint { start, length, kind: WatchKind::Write };
        let check = |(start, length), (at, size), expected| {
            let found = watched(start, length).concerns(Linear(at), size);
            assert_eq!(found, expected, "{start:#x} {length} {at:#x} {size}");
        };
        check((0x1000, 4), (0x1000, 4), true);
        check((0x1000, 4), (0x1003, 8), true);
        check((0x1000, 4), (0xffd, 4), true);
        check((0x1000, 4), (0xffc, 4), false);
        check((0x1000, 4), (0x1004, 1), false);
        check((0x1000, 0), (0x1000, 1), false);
        check((0x1000, 1), (0x1000, 0), false);
        check((0x1002, 1), (0x1000, 4096), true);
        check((u64::MAX, 1), (u64::MAX - 7, 8), true);
    }

    #[test]
    fn a_breakpoint_makes_its_offset_suspect_and_its_page_special() {
        let mut debugging = Debugging::none();
        assert!(!debugging.is_suspect(0x1234));
        debugging.stops = Arc::new(Stops::new(vec![0x40_1234, 0x1000, 0x1000], Vec::new()));
        debugging.suspect = Offsets::of(&debugging.stops.breakpoints);
        debugging.note_active();
        assert!(debugging.is_suspect(0x1234) && !debugging.breaks_at(0x1234));
        assert!(debugging.breaks_at(0x40_1234) && debugging.breaks_at(0x1000));
        assert!(debugging.breaks_in(Linear(0x40_1fff)) && !debugging.breaks_in(Linear(0x40_2000)));
        let over = |at, length| debugging.suspect.are_in(Physical(at), length);
        assert!(over(0x7_0230, 5) && !over(0x7_0230, 4) && !over(0x7_0235, 100));
        assert!(over(0x7_0000, 1) && !over(0x7_0001, 64));
    }
}

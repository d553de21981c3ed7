//! What a domain's validation remembers between operations, and the view of it that operations are called on.

use std::collections::BTreeMap;

use xen_abi::Mfn;

use crate::abi::Errno;
use crate::entry::Level;
use crate::record::Frames;

/// Why an operation has not been done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It is refused.
    Refused(Errno),
    /// [`Effects::should_yield`](crate::Effects::should_yield) stopped it: ask for the same again.
    Yield,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno)
    }
}

/// What is done with a table on the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Entries below `next` are validated.
    Validate,
    /// Entries from `next` on are put; with the error that ended the table's promotion, if it was that.
    Put(Option<Errno>),
}

/// A table whose entries are being validated or put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub table: Mfn,
    pub level: Level,
    pub next: usize,
    pub mode: Mode,
}

/// A promotion that an operation has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Goal {
    pub vcpu: usize,
    pub table: Mfn,
    pub level: Level,
}

/// A promotion's outcome, which its processor has not come back for yet. Of a success it holds the references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub table: Mfn,
    pub level: Level,
    pub outcome: Result<(), Errno>,
}

/// The roots of a processor's address spaces.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct BasePointers {
    pub kernel: Option<Mfn>,
    pub user: Option<Mfn>,
}

/// What a domain's validation remembers between operations.
#[derive(Debug, Default)]
pub struct State {
    /// The tables that are being worked on, each below the one before.
    pub(crate) stack: Vec<Step>,
    /// What the stack is for, if it is a promotion that was asked for.
    pub(crate) goal: Option<Goal>,
    /// Tables without a use, which wait for their demotion: at most one per processor, and two.
    pub(crate) unused: Vec<(Mfn, Level)>,
    /// At most one of each processor.
    pub(crate) held: Vec<(usize, Held)>,
    /// By processor.
    pub(crate) roots: BTreeMap<usize, BasePointers>,
}

impl State {
    /// No promotion or demotion has been interrupted.
    pub fn is_settled(&self) -> bool {
        self.stack.is_empty() && self.unused.is_empty()
    }

    /// The outcome that a processor has not come back for yet, which is forgotten.
    #[inline]
    pub(crate) fn take_held(&mut self, vcpu: usize) -> Option<Held> {
        let place = self.held.iter().position(|(number, _)| *number == vcpu)?;
        Some(self.held.swap_remove(place).1)
    }

    /// The processor's root of the kernel's address space.
    pub fn base(&self, vcpu: usize) -> Option<Mfn> {
        self.roots.get(&vcpu)?.kernel
    }

    /// The processor's root of user programs' address space.
    pub fn user_base(&self, vcpu: usize) -> Option<Mfn> {
        self.roots.get(&vcpu)?.user
    }
}

/// A domain's page tables, as one processor operates on them.
pub struct Tables<'t, M> {
    pub(crate) frames: Frames<'t>,
    pub(crate) state: &'t mut State,
    pub(crate) machine: &'t mut M,
    pub(crate) vcpu: usize,
}

impl<'t, M> Tables<'t, M> {
    /// The machine that the operations are of.
    pub fn machine(&mut self) -> &mut M {
        self.machine
    }

    /// For operations of another processor, which does not run.
    pub fn of_vcpu(&mut self, vcpu: usize) -> Tables<'_, M> {
        Tables { frames: self.frames, state: self.state, machine: self.machine, vcpu }
    }

    /// For one or more operations of a processor, while the caller holds the domain's lock.
    pub fn new(frames: Frames<'t>, state: &'t mut State, machine: &'t mut M, vcpu: usize) -> Self {
        Self { frames, state, machine, vcpu }
    }
}

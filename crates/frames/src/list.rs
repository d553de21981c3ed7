//! Lists of operations, as mmu_update and mmuext_op have them, and how they go on after an interruption.

use crate::abi::Errno;
use crate::machine::{Effects, Memory};
use crate::state::{Stop, Tables};

/// How a list ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All of it is done.
    Done,
    /// The operation after those that are done is refused.
    Refused(Errno),
    /// Call again with what is left, be it nothing: `MMU_UPDATE_PREEMPTED` is set in the count.
    Continue,
}

/// How far a list got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Operations that are done, from the first of this call on.
    pub done: usize,
    /// How it ended there.
    pub outcome: Outcome,
}

impl<M: Memory + Effects> Tables<'_, M> {
    /// Do `count` operations in their order. `operate` reads the one of this number, only now since the ones before
    /// may change the list, and calls what it says.
    pub fn run_list(
        &mut self,
        count: usize,
        mut operate: impl FnMut(&mut Self, usize) -> Result<(), Stop>,
    ) -> Progress {
        if self.settle().is_err() {
            return Progress { done: 0, outcome: Outcome::Continue };
        }
        for done in 0..count {
            let yields = done > 0 && (!self.state.is_settled() || self.machine.should_yield());
            let result = if yields { Err(Stop::Yield) } else { operate(self, done) };
            match result {
                Ok(()) => (),
                Err(Stop::Yield) => return Progress { done, outcome: Outcome::Continue },
                Err(Stop::Refused(error)) => {
                    return Progress { done, outcome: Outcome::Refused(error) };
                }
            }
        }
        let outcome = if self.state.is_settled() { Outcome::Done } else { Outcome::Continue };
        Progress { done: count, outcome }
    }
}

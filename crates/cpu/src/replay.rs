//! Values for exits in the middle of an instruction, and the restart of that instruction.
//!
//! An instruction that needs a value from outside the vCPU (a port, device memory, a platform register) is
//! abandoned with an exit, and executed again from its start when the value has arrived. The restarted instruction
//! gets the values that arrived before in the same order. What an instruction sends outside is queued, and leaves
//! when the instruction has completed; an abandoned attempt discards what it queued.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::exception::{Exception, Trap};
use crate::exit::Exit;

/// Values that one instruction may need before the guest is doing something absurd.
const MAX_ANSWERS: usize = 4096;

/// One answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    Value(u64),
    Fault,
}

/// The log of one instruction.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Replay {
    answers: Vec<Answer>,
    next: usize,
    queued: VecDeque<Exit>,
    /// An exit that asked a question has been returned, and is not answered yet.
    asked: bool,
}

impl Replay {
    /// Whether an exit has been returned in the middle of an instruction that is to go on.
    pub(crate) fn has_question(&self) -> bool {
        self.asked || !self.answers.is_empty()
    }

    /// Whether this attempt has used an answer, or has something to send.
    pub(crate) fn is_used(&self) -> bool {
        self.next > 0 || !self.queued.is_empty()
    }

    /// Take back a question: the instruction has decided to stop before the access that asks it.
    pub(crate) fn withdraw(&mut self) {
        self.asked = false;
    }

    /// Start, or start again, an instruction.
    pub(crate) fn begin(&mut self) {
        self.next = 0;
    }

    /// The instruction has completed, or faulted: forget its answers.
    pub(crate) fn end(&mut self) {
        self.answers.clear();
        self.next = 0;
    }

    /// The attempt was abandoned: discard what it queued.
    pub(crate) fn abandon(&mut self) {
        self.queued.clear();
    }

    /// The answer to `question`: from the log, or by leaving with it.
    ///
    /// # Errors
    ///
    /// The exit itself when there is no answer yet; #GP when the machine said so.
    pub(crate) fn answer(&mut self, question: Exit) -> Result<u64, Trap> {
        let Some(&answer) = self.answers.get(self.next) else {
            self.asked = true;
            return Err(Trap::Exit(question));
        };
        self.next += 1;
        match answer {
            Answer::Value(value) => Ok(value),
            Answer::Fault => Err(Exception::general_protection(0).into()),
        }
    }

    /// Send `exit` when the instruction has completed.
    pub(crate) fn queue(&mut self, exit: Exit) {
        self.queued.push_back(exit);
    }

    /// Whether there is something to send.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// The next thing to send.
    pub(crate) fn take_queued(&mut self) -> Option<Exit> {
        self.queued.pop_front()
    }

    fn push(&mut self, answer: Answer) {
        if self.asked && self.answers.len() < MAX_ANSWERS {
            self.answers.push(answer);
        }
        self.asked = false;
    }

    /// The machine's answer.
    pub(crate) fn complete(&mut self, value: u64) {
        self.push(Answer::Value(value));
    }

    /// The machine's refusal.
    pub(crate) fn fail(&mut self) {
        self.push(Answer::Fault);
    }
}

//! A guest whose process 1 is its own, as its hub knows it: `biv run --init PATH`.
//!
//! Init greets, is told what the system must have, and which program is to be process 1. The hub says nothing more,
//! until the agent beside that program greets ([`protocol`] has the conversation). What rules it:
//!
//! 1. *Each greeting begins a new conversation*: encoder, window and what was on its way are those of nobody any more.
//! 2. *Who greets is known by what was said last.* After the order it is the agent; otherwise the machine has rebooted,
//!    and it is init, which is told everything again. Commands that ran before have gone with their system.

use std::io::Write;
use std::os::unix::net::UnixStream;

use protocol::Frame;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Init is being told what to do.
    Ordering,
    /// Init has been told, and the agent has not greeted yet.
    Awaited,
    /// The agent has, and says soon what has become of the program.
    Greeted,
    /// The program runs.
    Running,
}

/// See above.
#[derive(Debug)]
pub struct ProcessOne {
    stage: Stage,
    /// What init is told, each time that the machine boots.
    told: Vec<Frame>,
    /// Where a byte is written when the program runs for the first time; it is closed if it never will.
    notice: Option<UnixStream>,
}

impl ProcessOne {
    /// One that is to be ordered: init is told all of this.
    pub fn new(told: Vec<Frame>, notice: Option<UnixStream>) -> ProcessOne {
        ProcessOne { stage: Stage::Ordering, told, notice }
    }

    /// Init has been told everything, if it was being told.
    pub fn note_order(&mut self) {
        if self.stage == Stage::Ordering {
            self.stage = Stage::Awaited;
        }
    }

    /// Somebody greets once more: what init is to be told, if it is init.
    pub fn note_greeting(&mut self) -> Option<&[Frame]> {
        if self.stage == Stage::Awaited {
            self.stage = Stage::Greeted;
            return None;
        }
        self.stage = Stage::Ordering;
        Some(&self.told)
    }

    /// It runs already, where the conversation goes on.
    pub fn go_on(&mut self) {
        self.stage = Stage::Greeted;
        self.note_start();
    }

    /// Whether nothing may be said until somebody greets.
    pub fn is_awaited(&self) -> bool {
        self.stage == Stage::Awaited
    }

    /// Whether the program runs.
    pub fn runs(&self) -> bool {
        self.stage == Stage::Running
    }

    /// The agent says that the program runs.
    pub fn note_start(&mut self) {
        if self.stage == Stage::Greeted {
            self.stage = Stage::Running;
            // Who waits for it may have gone.
            let notice = self.notice.take();
            notice.into_iter().for_each(|mut notice| drop(notice.write_all(&[1])));
        }
    }

    /// It will not run: the guest is lost.
    pub fn give_up(&mut self) {
        self.notice = None;
    }
}

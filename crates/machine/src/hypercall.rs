//! What a guest asks of a hypervisor, and is answered, whatever the board.

/// There is no such call (`KVM_ENOSYS`).
pub(crate) const NO_SUCH_CALL: i64 = -1000;

/// What the guest asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// RAX.
    pub number: u64,
    /// RBX, RCX, RDX, RSI; outside 64-bit mode their low halves.
    pub arguments: [u64; 4],
}

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// RAX.
    pub value: u64,
    /// What was done.
    pub done: Done,
}

/// What a call has come to, for the run loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Nothing that concerns other processors.
    Nothing,
    /// Another processor's halt ends.
    EndedHalt,
    /// Others are interrupted.
    Interrupted,
    /// The caller waits for another processor: where they share cores, its thread may let others
    /// have its own.
    Yielded,
}

impl Answer {
    /// No call is known.
    pub const NONE: Self = Self { value: NO_SUCH_CALL as u64, done: Done::Nothing };

    pub(crate) fn of(value: i64) -> Self {
        Self { value: value as u64, done: Done::Nothing }
    }

    pub(crate) fn with(self, is_so: bool, done: Done) -> Self {
        if is_so { Self { done, ..self } } else { self }
    }
}

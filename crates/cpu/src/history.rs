//! What the processor did last: a ring of the places where translated code came back to Rust, of the
//! events that were delivered and of the exits that were taken, for working out how a guest got where
//! it is.

use std::fmt;

use crate::exit::Exit;

/// Entries that are kept at least.
const MIN_ENTRIES: usize = 64;

/// Entries that are kept at most.
const MAX_ENTRIES: usize = 1 << 20;

/// One thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are what their names say.
pub enum Happened {
    /// Translated code came back at this instruction.
    Left { rip: u64, why: &'static str },
    /// An exception was delivered at this instruction.
    Exception { rip: u64, vector: u8, error: u32, payload: u64 },
    /// An interrupt was delivered before this instruction.
    Interrupt { rip: u64, vector: u8 },
    /// [`crate::Vcpu::run`] came back, or will soon: for a port, a register or an address, with what
    /// was written or with the answer.
    Exit { rip: u64, kind: ExitKind, place: u64, value: u64 },
    /// A block is about to be executed. Only a tracer is told.
    Block { rip: u64 },
    /// An instruction is about to be interpreted. Only a tracer is told.
    Interpreted { rip: u64 },
}

/// The kinds of [`Exit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // As their namesakes.
pub enum ExitKind {
    IoRead,
    IoWrite,
    MmioRead,
    MmioWrite,
    MsrRead,
    MsrWrite,
    TprRead,
    TprWrite,
    Hypercall,
    ParavirtualWrite,
    Halt,
    InterruptWindow,
    Kicked,
    Debug,
    Shutdown,
}

impl ExitKind {
    fn name(self) -> &'static str {
        match self {
            Self::IoRead => "in",
            Self::IoWrite => "out",
            Self::MmioRead => "device read",
            Self::MmioWrite => "device write",
            Self::MsrRead => "rdmsr",
            Self::MsrWrite => "wrmsr",
            Self::TprRead => "cr8 read",
            Self::TprWrite => "cr8 write",
            Self::Hypercall => "hypercall",
            Self::ParavirtualWrite => "write of a table",
            Self::Halt => "halt",
            Self::InterruptWindow => "interrupt window",
            Self::Kicked => "called away",
            Self::Debug => "stop for a debugger",
            Self::Shutdown => "shutdown",
        }
    }

    /// Whether it has a place and a value.
    fn has_value(self) -> bool {
        use ExitKind::{Debug, Halt, InterruptWindow, Kicked, Shutdown};
        !matches!(self, Halt | InterruptWindow | Kicked | Debug | Shutdown)
    }
}

impl Happened {
    /// An exit at `rip`.
    pub(crate) fn exit(rip: u64, exit: &Exit) -> Self {
        use ExitKind as K;
        let (kind, place, value) = match *exit {
            Exit::IoRead { port, .. } => (K::IoRead, port.into(), 0),
            Exit::IoWrite { port, value, .. } => (K::IoWrite, port.into(), value.into()),
            Exit::MmioRead { address, .. } => (K::MmioRead, address, 0),
            Exit::MmioWrite { address, value, .. } => (K::MmioWrite, address, value),
            Exit::MsrRead { index } => (K::MsrRead, index.into(), 0),
            Exit::MsrWrite { index, value } => (K::MsrWrite, index.into(), value),
            Exit::TprRead => (K::TprRead, 8, 0),
            Exit::TprWrite { value } => (K::TprWrite, 8, value.into()),
            Exit::Hypercall { number, .. } => (K::Hypercall, number, 0),
            Exit::ParavirtualCall { number, .. } => (K::Hypercall, number, 0),
            Exit::ParavirtualWrite { address, new, .. } => (K::ParavirtualWrite, address, new),
            Exit::Halt => (K::Halt, 0, 0),
            Exit::InterruptWindow => (K::InterruptWindow, 0, 0),
            Exit::Kicked => (K::Kicked, 0, 0),
            Exit::Debug => (K::Debug, 0, 0),
            Exit::Shutdown => (K::Shutdown, 0, 0),
        };
        Self::Exit { rip, kind, place, value }
    }
}

/// One line, which begins with the address of an instruction.
impl fmt::Display for Happened {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Left { rip, why } => write!(out, "{rip:#018x} {why}"),
            Self::Exception { rip, vector, error, payload } => {
                write!(out, "{rip:#018x} exception {vector} error {error:#x} address {payload:#x}")
            }
            Self::Interrupt { rip, vector } => write!(out, "{rip:#018x} interrupt {vector:#x}"),
            Self::Exit { rip, kind, place, value } if kind.has_value() => {
                write!(out, "{rip:#018x} {} {place:#x} value {value:#x}", kind.name())
            }
            Self::Exit { rip, kind, .. } => write!(out, "{rip:#018x} {}", kind.name()),
            Self::Block { rip } => write!(out, "{rip:#018x} block"),
            Self::Interpreted { rip } => write!(out, "{rip:#018x} interpreted"),
        }
    }
}

/// The last things that happened, oldest first.
#[derive(Debug, Clone)]
pub struct History {
    /// Their number is a power of two: this is written each time that translated code is left.
    ring: Box<[Option<Happened>]>,
    next: usize,
}

impl History {
    /// An empty history with room for so many entries, rounded up, within bounds.
    pub(crate) fn new(entries: usize) -> Self {
        let entries = entries.clamp(MIN_ENTRIES, MAX_ENTRIES).next_power_of_two();
        Self { ring: vec![None; entries].into(), next: 0 }
    }

    /// Add one.
    #[inline]
    pub(crate) fn note(&mut self, happened: Happened) {
        let mask = self.ring.len() - 1;
        self.ring[self.next & mask] = Some(happened);
        self.next = self.next.wrapping_add(1);
    }

    /// The machine has answered the last exit.
    #[inline]
    pub(crate) fn answer(&mut self, answer: u64) {
        let mask = self.ring.len() - 1;
        let last = &mut self.ring[self.next.wrapping_sub(1) & mask];
        if let Some(Happened::Exit { value, .. }) = last {
            *value = answer;
        }
    }

    /// Oldest first.
    pub fn entries(&self) -> impl Iterator<Item = Happened> + '_ {
        let mask = self.ring.len() - 1;
        (0..self.ring.len()).filter_map(move |index| self.ring[(self.next + index) & mask])
    }
}

impl fmt::Display for History {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries().try_for_each(|happened| writeln!(out, "{happened}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_in_order() {
        let mut history = History::new(100);
        (0..1000).for_each(|rip| history.note(Happened::Interrupt { rip, vector: 0 }));
        let kept: Vec<_> = history.entries().collect();
        assert_eq!(kept.len(), 128);
        assert_eq!(kept.first(), Some(&Happened::Interrupt { rip: 872, vector: 0 }));
        assert_eq!(kept.last(), Some(&Happened::Interrupt { rip: 999, vector: 0 }));
    }

    #[test]
    fn an_exit_is_kept_with_its_answer() {
        let mut history = History::new(0);
        history.note(Happened::exit(0x1000, &Exit::IoRead { port: 0x3fd, size: 1 }));
        history.answer(0x60);
        assert_eq!(history.to_string(), "0x0000000000001000 in 0x3fd value 0x60\n");
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Option<Happened>>() <= 32);
    }
}

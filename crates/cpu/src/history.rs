//! What the processor did last: a ring of the places where translated code came back to Rust and of
//! the events that were delivered, for working out how a guest got where it is.

use std::fmt;

/// Entries that are kept.
const ENTRIES: usize = 64;

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
}

/// The last things that happened, oldest first.
#[derive(Debug, Clone)]
pub struct History {
    ring: [Option<Happened>; ENTRIES],
    next: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { ring: [None; ENTRIES], next: 0 }
    }
}

impl History {
    /// Add one.
    #[inline]
    pub(crate) fn note(&mut self, happened: Happened) {
        self.ring[self.next % ENTRIES] = Some(happened);
        self.next = self.next.wrapping_add(1);
    }

    /// Oldest first.
    pub fn entries(&self) -> impl Iterator<Item = Happened> + '_ {
        (0..ENTRIES).filter_map(|index| self.ring[(self.next + index) % ENTRIES])
    }
}

impl fmt::Display for History {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for happened in self.entries() {
            match happened {
                Happened::Left { rip, why } => writeln!(out, "{rip:#018x} {why}")?,
                Happened::Exception { rip, vector, error, payload } => writeln!(
                    out,
                    "{rip:#018x} exception {vector} error {error:#x} address {payload:#x}"
                )?,
                Happened::Interrupt { rip, vector } => {
                    writeln!(out, "{rip:#018x} interrupt {vector:#x}")?;
                }
            }
        }
        Ok(())
    }
}

//! Admission: how much paravirtual domains may have, each and together.
//!
//! A user who says nothing has no limits, and domains get what they ask for, as ordinary machines do. What a domain
//! asks for is the most that it may ever have: its `--max-mem`, and all of its processors. It is written into its
//! directory before the domain begins, under the lock that only one process has that makes directories. So two domains
//! that begin at once do not both get what is left.
//!
//! Limits that cannot be read admit nobody.

use std::fmt;

use serde::{Deserialize, Serialize};
use spec::{Board, Spec};

/// The most that a domain may ever have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Bytes of memory.
    pub memory: u64,
    /// Its processors.
    pub processors: u64,
}

impl Demand {
    /// What a machine like this asks for; none if it is not a paravirtual one.
    #[must_use]
    pub fn of(spec: &Spec) -> Option<Self> {
        let machine = &spec.machine;
        let memory = machine.maximum_memory.unwrap_or_default().max(machine.memory);
        (machine.board == Board::Xen)
            .then(|| Self { memory, processors: machine.processors.into() })
    }
}

impl std::iter::Sum for Demand {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            memory: sum.memory.saturating_add(one.memory),
            processors: sum.processors.saturating_add(one.processors),
        })
    }
}

/// The most that there may be; none is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of memory of all domains together.
    pub memory: Option<u64>,
    /// Processors of all domains together.
    pub processors: Option<u64>,
    /// Bytes of memory of one domain.
    pub domain_memory: Option<u64>,
    /// Processors of one domain.
    pub domain_processors: Option<u64>,
}

/// What a limit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Memory,
    Processors,
}

/// Why a domain does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    of: Of,
    wanted: u64,
    most: u64,
    /// What others have, if the limit is theirs as well.
    taken: Option<u64>,
}

impl Of {
    fn amount(self, amount: u64) -> Amount {
        Amount { of: self, amount }
    }
}

struct Amount {
    of: Of,
    amount: u64,
}

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Of::Memory => write!(formatter, "{} MiB of memory", self.amount.div_ceil(1 << 20)),
            Of::Processors if self.amount == 1 => formatter.write_str("1 processor"),
            Of::Processors => write!(formatter, "{} processors", self.amount),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, wanted, most, taken } = *self;
        let (wanted, most) = (of.amount(wanted), of.amount(most));
        match taken {
            None => write!(formatter, "it may have {wanted}, and one domain {most} at most"),
            Some(taken) => write!(
                formatter,
                "it may have {wanted}, others have {}, and all together {most} at most",
                of.amount(taken)
            ),
        }
    }
}

impl Limits {
    /// Whether a domain may begin beside others.
    ///
    /// # Errors
    ///
    /// It may not.
    pub fn admit(&self, wanted: Demand, taken: Demand) -> Result<(), Refusal> {
        let one = |of, wanted, most: Option<u64>| match most {
            Some(most) if wanted > most => Err(Refusal { of, wanted, most, taken: None }),
            _ => Ok(()),
        };
        let all = |of, wanted: u64, taken: u64, most: Option<u64>| match most {
            Some(most) if wanted.saturating_add(taken) > most => {
                Err(Refusal { of, wanted, most, taken: Some(taken) })
            }
            _ => Ok(()),
        };
        one(Of::Memory, wanted.memory, self.domain_memory)?;
        one(Of::Processors, wanted.processors, self.domain_processors)?;
        all(Of::Memory, wanted.memory, taken.memory, self.memory)?;
        all(Of::Processors, wanted.processors, taken.processors, self.processors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn demand(memory: u64, processors: u64) -> Demand {
        Demand { memory: memory * MIB, processors }
    }

    #[test]
    fn a_domain_begins_if_it_fits_by_itself_and_beside_the_others() {
        let none = Limits::default();
        none.admit(demand(u64::MAX / MIB, u64::MAX), demand(u64::MAX / MIB, 1)).unwrap();
        let limits = Limits {
            memory: Some(1024 * MIB),
            processors: Some(4),
            domain_memory: Some(512 * MIB),
            domain_processors: Some(2),
        };
        limits.admit(demand(512, 2), demand(512, 2)).unwrap();
        let refused = |wanted, taken| limits.admit(wanted, taken).unwrap_err().to_string();
        assert_eq!(
            refused(demand(513, 1), demand(0, 0)),
            "it may have 513 MiB of memory, and one domain 512 MiB of memory at most"
        );
        assert_eq!(
            refused(demand(1, 3), demand(0, 0)),
            "it may have 3 processors, and one domain 2 processors at most"
        );
        assert_eq!(
            refused(demand(512, 1), demand(513, 1)),
            "it may have 512 MiB of memory, others have 513 MiB of memory, and all together 1024 \
             MiB of memory at most"
        );
        assert_eq!(
            refused(demand(1, 1), demand(1, 4)),
            "it may have 1 processor, others have 4 processors, and all together 4 processors at \
             most"
        );
        // Sums do not wrap.
        refused(demand(512, 2), demand(u64::MAX / MIB, u64::MAX));
    }
}

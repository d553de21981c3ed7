//! What a registry keeps: domains, or pods.

use std::fmt;
use std::io;

/// What a registry has the names of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Virtual machines.
    Domain,
    /// Pods.
    Pod,
}

impl Kind {
    /// The program and its first words, for its verbs.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Kind::Domain => "biv",
            Kind::Pod => "biv pod",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Domain => "domain",
            Kind::Pod => "pod",
        })
    }
}

/// What a registry keeps of each, in its directory ([`crate::files::RECORD`]).
pub trait Kept: Sized {
    /// Of what it is.
    const KIND: Kind;

    /// The record in a file.
    ///
    /// # Errors
    ///
    /// It is none, or of another version.
    fn parse(text: &[u8]) -> io::Result<Self>;

    /// Whether what is there stays when it has ended, until it is removed.
    fn is_kept(&self) -> bool;
}

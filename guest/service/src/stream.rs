//! The streams of a command.

/// A stream of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// What it reads.
    Stdin,
    /// What it writes.
    Stdout,
    /// What it complains about.
    Stderr,
}

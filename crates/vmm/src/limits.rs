//! The limits of a machine.

/// The most processors that a machine can have.
pub const MAX_PROCESSORS: usize = 16;

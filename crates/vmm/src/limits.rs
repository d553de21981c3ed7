//! The limits of a machine.

/// The most processors that a machine can have.
pub const MAX_PROCESSORS: usize = 16;

/// The largest firmware: what is below it, from 0xfec0_0000 on, is the interrupt controllers'.
pub const MAX_FIRMWARE_BYTES: u64 = 16 << 20;

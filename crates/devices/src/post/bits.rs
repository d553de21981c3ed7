//! The port's one register.

/// Nothing has been shown yet.
pub const AFTER_RESET: u8 = 0;

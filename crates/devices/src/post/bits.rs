//! The port's one register.

/// Nothing has been shown yet.
pub const AFTER_RESET: u8 = 0;

/// It has one port.
pub const PORTS: u16 = 1;

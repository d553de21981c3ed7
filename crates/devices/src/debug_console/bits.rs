//! What the port reads as.

/// The port's own number: by this a guest knows that it is there (Bochs, `port_e9_hack`).
pub const PRESENT: u32 = 0xe9;

/// It has one port.
pub const PORTS: u16 = 1;

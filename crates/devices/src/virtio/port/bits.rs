//! Ports of a console device (virtio 1.2, 5.3).

/// Descriptors of its queues: to and from the guest, and control messages to and from it (5.3.2). Linux
/// puts a page into each of the first one, and up to 32 KiB into each of the second.
pub const QUEUE_SIZES: [u16; 4] = [128, 32, 16, 16];

/// The queues.
pub const RECEIVE: usize = 0;
pub const TRANSMIT: usize = 1;
pub const CONTROL_TO_GUEST: usize = 2;

/// Control messages (5.3.6.2).
pub mod control {
    /// Number of the port (4 bytes), event and value (2 each), little-endian.
    pub const BYTES: usize = 8;

    /// Guest: the driver is ready.
    pub const DEVICE_READY: u16 = 0;
    /// Device: there is a port of that number.
    pub const DEVICE_ADD: u16 = 1;
    /// Guest: it is ready for the port.
    pub const PORT_READY: u16 = 3;
    /// Either: a program has opened it (1) or closed it (0).
    pub const PORT_OPEN: u16 = 6;
    /// Device: the port's name follows.
    pub const PORT_NAME: u16 = 7;
}

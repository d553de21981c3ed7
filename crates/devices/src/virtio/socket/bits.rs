//! The socket device (virtio 1.2, 5.10).

use bitflags::bitflags;

/// Device type.
pub const NUMBER: u16 = 19;

/// PCI class: none of those that are defined.
pub const CLASS: u32 = 0xff_00_00;

/// Descriptors of its queues (5.10.2): to the guest, from it, and events.
pub const QUEUE_SIZES: [u16; 3] = [128, 128, 8];

/// The queues of packets.
pub const RECEIVE: usize = 0;
pub const TRANSMIT: usize = 1;

/// The host's address (5.10.4).
pub const HOST: u64 = 2;

bitflags! {
    /// Features (5.10.3).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        /// There are streams.
        const STREAM = 1 << 0;
    }
}

/// The header before each packet (5.10.6), little-endian.
#[allow(missing_docs)]
pub mod header {
    pub const BYTES: usize = 44;
    pub const SOURCE: usize = 0;
    pub const DESTINATION: usize = 8;
    pub const LENGTH: usize = 24;
    pub const KIND: usize = 28;
    pub const OPERATION: usize = 30;
    /// The kind that is a stream.
    pub const STREAM: u16 = 1;
    /// The operation that carries bytes.
    pub const DATA: u16 = 5;
}

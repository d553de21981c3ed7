//! The console device (virtio 1.2, 5.3).

use bitflags::bitflags;

/// Device type.
pub const NUMBER: u16 = 3;

/// PCI class: a communication controller of no kind that is defined.
pub const CLASS: u32 = 0x07_80_00;

/// Descriptors of its queues, to and from the guest (5.3.2). Linux puts a page into each of the first one.
pub const QUEUE_SIZES: [u16; 2] = [16, 64];

/// The queues.
pub const RECEIVE: usize = 0;

bitflags! {
    /// Features (5.3.3).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        /// The configuration has the size of the window.
        const SIZE = 1 << 0;
        /// There are queues of control messages, and ports that are no consoles.
        const MULTIPORT = 1 << 1;
    }
}

/// The configuration space (5.3.4).
#[allow(missing_docs)]
pub mod configuration {
    pub const SIZE: usize = 0;
    /// Up to the end of `emerg_wr`.
    pub const BYTES: usize = 12;
    pub const PORTS: usize = 4;
}

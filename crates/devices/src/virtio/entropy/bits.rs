//! The entropy device (virtio 1.2, 5.4).

/// Device type.
pub const NUMBER: u16 = 4;

/// PCI class: none of those that are defined.
pub const CLASS: u32 = 0xff_00_00;

/// Descriptors of its queue.
pub const QUEUE_SIZES: [u16; 1] = [64];

//! The network device (virtio 1.2, 5.1).

use bitflags::bitflags;

/// Device type.
pub const NUMBER: u16 = 1;

/// PCI class: an Ethernet controller.
pub const CLASS: u32 = 0x02_00_00;

/// Descriptors of a queue of frames. Of frames with 64 KiB, each takes some twenty to receive.
pub const QUEUE_SIZE: u16 = 1024;

/// Descriptors of the control queue.
pub const CONTROL_QUEUE_SIZE: u16 = 64;

/// Before each frame (5.1.6).
#[allow(missing_docs)]
pub mod header {
    pub const BYTES: usize = 12;
    pub const BUFFERS: usize = 10;
    /// In the flags: the checksum is known to be right.
    pub const DATA_VALID: u8 = 2;
}

/// Of an Ethernet frame.
pub const MIN_FRAME_BYTES: u64 = 14;

/// What segmentation leaves together: an IP packet of the greatest length, and its Ethernet header
/// with a VLAN's tag.
pub const MAX_FRAME_BYTES: u64 = 65535 + 18;

bitflags! {
    /// Features (5.1.3).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        /// The driver may leave checksums to the device.
        const CHECKSUM = 1 << 0;
        /// The device may leave checksums to the driver.
        const GUEST_CHECKSUM = 1 << 1;
        /// What the device may leave together can be changed.
        const GUEST_OFFLOADS = 1 << 2;
        /// There is a greatest size of packets.
        const MTU = 1 << 3;
        /// There is an address.
        const ADDRESS = 1 << 5;
        /// The device may leave segments together: of TCP over IPv4,
        const GUEST_TSO4 = 1 << 7;
        /// over IPv6,
        const GUEST_TSO6 = 1 << 8;
        /// and with congestion notifications.
        const GUEST_ECN = 1 << 9;
        /// The driver may, likewise.
        const HOST_TSO4 = 1 << 11;
        /// Over IPv6.
        const HOST_TSO6 = 1 << 12;
        /// With congestion notifications.
        const HOST_ECN = 1 << 13;
        /// A frame may be received into several buffers.
        const MERGEABLE = 1 << 15;
        /// It is said whether the cable is plugged in.
        const STATUS = 1 << 16;
        /// There is a control queue.
        const CONTROL = 1 << 17;
        /// Several pairs of queues.
        const MULTIQUEUE = 1 << 22;
        /// The driver may choose its address.
        const CONTROL_ADDRESS = 1 << 23;
        /// The device may leave datagrams together: of UDP over IPv4,
        const GUEST_USO4 = 1 << 54;
        /// over IPv6.
        const GUEST_USO6 = 1 << 55;
        /// The driver may.
        const HOST_USO = 1 << 56;
    }
}

impl Features {
    /// What a device may leave together or unfinished, for which the driver asks.
    pub const GUEST: Self = Self::GUEST_CHECKSUM
        .union(Self::GUEST_TSO4)
        .union(Self::GUEST_TSO6)
        .union(Self::GUEST_ECN)
        .union(Self::GUEST_USO4)
        .union(Self::GUEST_USO6);

    /// What a driver may.
    pub const HOST: Self = Self::CHECKSUM
        .union(Self::HOST_TSO4)
        .union(Self::HOST_TSO6)
        .union(Self::HOST_ECN)
        .union(Self::HOST_USO);
}

/// The configuration space (5.1.4).
#[allow(missing_docs)]
pub mod configuration {
    pub const ADDRESS: usize = 0;
    pub const STATUS: usize = 6;
    pub const AFTER_STATUS: usize = 8;
    /// In the status: the cable is plugged in.
    pub const LINK_UP: u16 = 1;
}

/// Commands of the control queue: class and command (5.1.6.5).
#[allow(missing_docs)]
pub mod command {
    pub const SET_ADDRESS: [u8; 2] = [1, 1];
    pub const SET_PAIRS: [u8; 2] = [4, 0];
    pub const SET_OFFLOADS: [u8; 2] = [5, 0];
    pub const OK: u8 = 0;
    pub const ERROR: u8 = 1;
    /// Most bytes of one.
    pub const MAX_BYTES: usize = 16;
}

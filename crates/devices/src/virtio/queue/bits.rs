//! Split virtqueues in memory (virtio 1.2, 2.7).

/// Descriptor flags.
#[allow(missing_docs)]
pub mod descriptor {
    pub const BYTES: u64 = 16;
    pub const NEXT: u16 = 1;
    pub const WRITE: u16 = 2;
    pub const INDIRECT: u16 = 4;
}

/// Offsets in either ring; its entries come after them.
#[allow(missing_docs)]
pub mod ring {
    pub const FLAGS: u64 = 0;
    pub const INDEX: u64 = 2;
    pub const ENTRIES: u64 = 4;
    pub const AVAILABLE_BYTES: u64 = 2;
    pub const USED_BYTES: u64 = 8;
}

/// In the available ring's flags: the driver wants no interrupts.
pub const NO_INTERRUPT: u16 = 1;

/// In the used ring's flags: the device wants no notifications.
pub const NO_NOTIFY: u16 = 1;

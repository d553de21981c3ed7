//! Which device an I/O port belongs to.
//!
//! A device claims the range of ports that it decodes; two cannot have the same port. An access belongs to the device
//! at its first byte. A port that no device has claimed reads as all ones, and writes to it are lost, as on a PCI bus
//! after a master abort. Devices at memory addresses are functions of the PCI bus ([`crate::pci`]), but for the few
//! whose addresses are fixed ([`MemoryDevice`]).

mod access;
mod memory;
mod ports;
#[cfg(test)]
mod tests;

pub(crate) use access::{Decoder, Plugged, PortBus};
pub(crate) use memory::MemoryBus;
pub use memory::MemoryDevice;
pub use ports::{PortDevice, Ports, Route, Width};

/// Bytes in one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Size {
    Byte = 1,
    Word = 2,
    Dword = 4,
    Qword = 8,
}

impl Size {
    /// The size of an access of `bytes` bytes, if processors make such.
    pub const fn from_bytes(bytes: u8) -> Option<Self> {
        Some(match bytes {
            1 => Self::Byte,
            2 => Self::Word,
            4 => Self::Dword,
            8 => Self::Qword,
            _ => return None,
        })
    }

    /// Bytes.
    pub const fn bytes(self) -> u8 {
        self as u8
    }

    /// All ones.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self as u32)
    }
}

/// Why a device cannot be on the bus.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another device is there.
    #[error("{name} cannot be at {address:#x}: {other} is there; move one of them")]
    Taken {
        /// The device that comes too late.
        name: &'static str,
        /// The first address that both want.
        address: u64,
        /// The device that is there.
        other: &'static str,
    },
    /// Empty, or past the end of the address space.
    #[error("{name} cannot be at {address:#x}: the range is empty or leaves the address space")]
    BadRange {
        /// The device.
        name: &'static str,
        /// Its first address.
        address: u64,
    },
    /// Nothing of this board's can be at memory addresses.
    #[error("{name} cannot be added: this board has no devices at memory addresses")]
    NoMemoryBus {
        /// The device.
        name: &'static str,
    },
    /// See [`crate::limits::MAX_BUS_DEVICES`].
    #[error("{name} cannot be added: the bus is full; remove a device")]
    Full {
        /// The device.
        name: &'static str,
    },
}

//! The guest-physical memory map, as boot protocols hand it to kernels.

/// What a range of guest-physical addresses is, with the numbers that e820 gives it (ACPI 6.5, table
/// 15.4), which all boot protocols share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// Memory that is free for use.
    Ram = 1,
    /// Not for use.
    Reserved = 2,
    /// ACPI tables, memory once they are read.
    AcpiTables = 3,
    /// Memory that ACPI wants preserved.
    AcpiStorage = 4,
}

impl MapKind {
    /// Whether a kernel may be placed there.
    pub fn is_ram(self) -> bool {
        self == Self::Ram
    }
}

/// An entry of the memory map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapEntry {
    /// Guest-physical address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// What is there.
    pub kind: MapKind,
}

impl MapEntry {
    /// Address after the last byte.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.size)
    }
}

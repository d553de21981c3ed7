//! Where things are, in the native process and in the guest alike: linear addresses below 4 GiB,
//! so that the same cases run in 64-bit and in compatibility mode.

/// Code of all cases of a batch, one slot each.
pub const CODE: u64 = 0x2000_0000;
/// Pages of code.
pub const CODE_PAGES: usize = 128;
/// Bytes between the starts of two cases; odd, so that code meets every alignment.
pub const SLOT_BYTES: usize = 509;
/// Most cases that fit into one batch.
pub const BATCH: usize = CODE_PAGES * PAGE / SLOT_BYTES;
/// Memory operands, [`PAGES`] pages.
pub const DATA: u64 = 0x3000_0000;
/// Bytes of a page.
pub const PAGE: usize = 4096;

/// What a page of the data area allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Absent,
    Writable,
    ReadOnly,
    /// Mapped, and not for this program: natively without rights, in the guest as
    /// [`super::engine::Setting`] has it.
    Closed,
}

/// The data area: every pair of neighbours that an operand can straddle is there.
pub const PAGES: [Kind; 10] = [
    Kind::Absent,
    Kind::Writable,
    Kind::Writable,
    Kind::Absent,
    Kind::ReadOnly,
    Kind::Writable,
    Kind::ReadOnly,
    Kind::Closed,
    Kind::Writable,
    Kind::Absent,
];

/// Number of writable pages.
pub const WRITABLE: usize = 4;

/// Selectors as Linux has them (arch/x86/include/asm/segment.h), which the guest copies.
pub const USER_CODE_32: u16 = 0x23;
pub const USER_DATA: u16 = 0x2b;
pub const USER_CODE_64: u16 = 0x33;

/// Where the code of case number `index` of a batch starts.
pub fn slot(index: usize) -> u64 {
    CODE + (index * SLOT_BYTES) as u64
}

/// Address of page `index` of the data area.
pub fn page(index: usize) -> u64 {
    DATA + (index * PAGE) as u64
}

/// What the data area has at `address`, if it is there.
pub fn kind_of(address: u64) -> Option<Kind> {
    PAGES.get(address.checked_sub(DATA)? as usize / PAGE).copied()
}

/// Indices of the writable pages.
pub fn writable() -> impl Iterator<Item = usize> {
    (0..PAGES.len()).filter(|&index| PAGES[index] == Kind::Writable)
}

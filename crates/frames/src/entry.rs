//! What an entry of a page table says, as far as validation looks at it.

use crate::record::FrameType;
use xen_abi::Mfn;
use xen_abi::mmu::RESERVED_SLOTS;

/// An entry of a page table of any level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry(pub u64);

impl Entry {
    /// It names a frame. This and what follows are the architecture's bits (SDM volume 3A, 5.5.4).
    pub const PRESENT: u64 = 1 << 0;
    /// Writes are allowed.
    pub const WRITABLE: u64 = 1 << 1;
    /// User programs may use it.
    pub const USER: u64 = 1 << 2;
    /// A part of the memory type.
    pub const WRITE_THROUGH: u64 = 1 << 3;
    /// A part of the memory type.
    pub const CACHE_DISABLED: u64 = 1 << 4;
    /// It was used.
    pub const ACCESSED: u64 = 1 << 5;
    /// It was written through.
    pub const DIRTY: u64 = 1 << 6;
    /// In an L1 the PAT's bit, in the others that of a large page.
    pub const LARGE: u64 = 1 << 7;
    /// It survives a change of the root.
    pub const GLOBAL: u64 = 1 << 8;
    /// The bits that software may use, below and above the address.
    pub const AVAILABLE: u64 = 7 << 9 | 0x7ff << 52;
    /// Nothing is executed through it.
    pub const NO_EXECUTE: u64 = 1 << 63;

    const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

    /// What may change in an entry without another look at it.
    const FLAGS: u64 = Self::NO_EXECUTE
        | Self::AVAILABLE
        | Self::GLOBAL
        | Self::DIRTY
        | Self::ACCESSED
        | Self::USER;

    /// Nothing else but an address may be in an entry of any level.
    const ALLOWED: u64 = Self::PRESENT
        | Self::WRITABLE
        | Self::USER
        | Self::ACCESSED
        | Self::DIRTY
        | Self::AVAILABLE
        | Self::NO_EXECUTE
        | Self::ADDRESS;

    /// An entry that names a frame.
    pub fn new(mfn: Mfn, flags: u64) -> Self {
        Self(mfn.0 << 12 & Self::ADDRESS | flags & !Self::ADDRESS)
    }

    /// It names a frame.
    #[inline]
    pub fn is_present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// It allows writes.
    #[inline]
    pub fn is_writable(self) -> bool {
        self.0 & Self::WRITABLE != 0
    }

    /// The frame that it names.
    #[inline]
    pub fn mfn(self) -> Mfn {
        Mfn::of_address(self.0 & Self::ADDRESS)
    }

    /// It names the frame number that Xen uses for none: all bits are set.
    pub(crate) fn names_no_frame(self) -> bool {
        self.0 & Self::ADDRESS == Self::ADDRESS
    }

    /// It has bits that a guest may not set at this level. An L1 entry may be global.
    #[inline]
    pub(crate) fn has_forbidden_bits(self, level: Level) -> bool {
        let more = if level == Level::L1 { Self::GLOBAL } else { 0 };
        self.0 & !(Self::ALLOWED | more) != 0
    }

    /// Both name the same frame with the same rights, so that the counts remain.
    #[inline]
    pub(crate) fn is_like(self, other: Self) -> bool {
        (self.0 ^ other.0) & !Self::FLAGS == 0
    }

    /// With the accessed and dirty bits of `other`, too.
    pub(crate) fn with_flags_of(self, other: Self) -> Self {
        Self(self.0 | other.0 & (Self::ACCESSED | Self::DIRTY))
    }
}

/// The level of a page table; L4 is the root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Its entries name memory.
    L1 = 1,
    /// Its entries name L1s.
    L2 = 2,
    /// Its entries name L2s.
    L3 = 3,
    /// The root.
    L4 = 4,
}

impl Level {
    /// The level whose tables the entries of this one name; none for an L1.
    #[inline]
    pub(crate) fn below(self) -> Option<Self> {
        match self {
            Self::L1 => None,
            Self::L2 => Some(Self::L1),
            Self::L3 => Some(Self::L2),
            Self::L4 => Some(Self::L3),
        }
    }

    /// The slot is the hypervisor's.
    #[inline]
    pub(crate) fn reserves(self, index: usize) -> bool {
        self == Self::L4 && RESERVED_SLOTS.contains(&index)
    }

    /// Where a linear address has its entry in a table of this level.
    #[inline]
    pub(crate) fn index(self, address: u64) -> usize {
        (address >> (3 + 9 * self as u32)) as usize & 511
    }

    /// The type of its frames.
    #[inline]
    pub fn frame_type(self) -> FrameType {
        match self {
            Self::L1 => FrameType::L1,
            Self::L2 => FrameType::L2,
            Self::L3 => FrameType::L3,
            Self::L4 => FrameType::L4,
        }
    }

    /// The level of tables of a type, if they are.
    #[inline]
    pub fn of_type(frame_type: FrameType) -> Option<Self> {
        match frame_type {
            FrameType::L1 => Some(Self::L1),
            FrameType::L2 => Some(Self::L2),
            FrameType::L3 => Some(Self::L3),
            FrameType::L4 => Some(Self::L4),
            FrameType::None | FrameType::Descriptors | FrameType::Writable => None,
        }
    }
}

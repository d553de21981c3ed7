//! Guest memory as the processor sees it: guest-physical ranges, page tables, the software TLB,
//! and checked access to linear addresses.
//!
//! The software TLB is the one place where a linear address becomes a host address. Translated
//! code looks entries up inline; everything else goes through [`access`]. An entry's existence is
//! a promise: permission was checked for the mode its `SpaceTlb` belongs to, the accessed bit (and for a
//! write tag the dirty bit) is set, and a page with a write tag has no translations.

pub(crate) mod access;
mod local;
pub(crate) mod mirror;
pub(crate) mod paging;
pub(crate) mod physical_jumps;
pub(crate) mod place;
pub(crate) mod ram;
pub(crate) mod reverse_map;
mod runs;
pub(crate) mod tlb;
mod window;
pub(crate) mod zeroed;

pub(crate) use tlb::Flush;

/// Bytes in the smallest page.
pub(crate) const PAGE_SIZE: u64 = 4096;

/// A linear address: what segmentation yields and paging takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Linear(pub u64);

impl Linear {
    /// The first byte of the page.
    pub(crate) fn page(self) -> Linear {
        Linear(self.0 & !(PAGE_SIZE - 1))
    }

    /// Byte offset in the page.
    pub(crate) fn offset(self) -> u64 {
        self.0 & (PAGE_SIZE - 1)
    }

    /// The address so many bytes behind it; addresses wrap at 2^64.
    pub(crate) fn plus(self, bytes: u64) -> Linear {
        Linear(self.0.wrapping_add(bytes))
    }

    /// The address in the lowest 4 GiB that is meant where addresses have 32 bits.
    pub(crate) fn low(self) -> Linear {
        Linear(self.0 & 0xffff_ffff)
    }

    /// Whether bits 63:47 are all equal (48-bit linear addresses, SDM 1 3.3.7.1).
    pub(crate) fn is_canonical(self) -> bool {
        (self.0 << 16) as i64 >> 16 == self.0 as i64
    }
}

/// A guest-physical address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Physical(pub u64);

impl Physical {
    /// The first byte of the page.
    pub(crate) fn page(self) -> Physical {
        Physical(self.0 & !(PAGE_SIZE - 1))
    }

    /// Byte offset in the page.
    pub(crate) fn offset(self) -> u64 {
        self.0 & (PAGE_SIZE - 1)
    }

    /// The address so many bytes behind it.
    pub(crate) fn plus(self, bytes: u64) -> Physical {
        Physical(self.0 + bytes)
    }
}

/// What is done to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// A data read.
    Read,
    /// A data write.
    Write,
    /// An instruction fetch.
    Execute,
}

/// Whose rights count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// Those of the current privilege level.
    Current,
    /// The processor's own accesses to descriptor tables, the TSS and interrupt stacks: supervisor
    /// rights at any CPL ("implicit supervisor accesses", SDM 3A 4.6).
    Supervisor,
}

/// The indices of the `SpaceTlb`s of the current address space, and what selected them.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// CR3, CR4.PCIDE and SMAP, CR0.PG.
    pub(super) mode: Option<(u64, u64, u64)>,
    /// For CPL 3, for lower CPLs with AC clear, and with AC set.
    pub(super) tlbs: [usize; 3],
    /// What the PML4 had where this process may be ([`place`]).
    pub(super) roots: [u64; 3],
    /// What the mirror was told last: under which CR3 it is used, if it is.
    pub(super) root: Option<u64>,
}

/// Where a linear address leads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// RAM: the host address, and the guest-physical address.
    Ram(*mut u8, Physical),
    /// Nothing is there: a device, perhaps.
    Device(Physical),
}

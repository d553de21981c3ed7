//! Page tables (public/xen.h).

structure! {
    /// One update of `mmu_update`.
    MmuUpdate = "struct mmu_update", 16 {
        /// Machine address of the entry; its two lowest bits are one of [`update`].
        pointer: u64 = "ptr" @ 0,
        value: u64 = "val" @ 8,
    }
}

constants! {
    /// What an update is, in the lowest bits of [`MmuUpdate::pointer`].
    update: u64 {
        PAGE_TABLE = 0, "MMU_NORMAL_PT_UPDATE";
        /// Of the machine-to-physical table.
        MACHINE_TO_PHYSICAL = 1, "MMU_MACHPHYS_UPDATE";
        /// As [`PAGE_TABLE`], but the accessed and dirty bits stay.
        PRESERVE_ACCESSED_DIRTY = 2, "MMU_PT_UPDATE_PRESERVE_AD";
        NO_TRANSLATE = 3, "MMU_PT_UPDATE_NO_TRANSLATE";
    }
}

/// The bits of [`MmuUpdate::pointer`] that are one of [`update`].
pub const UPDATE_MASK: u64 = 3;

/// In the count of several hypercalls: the rest of a call that was interrupted.
pub const PREEMPTED: u32 = 1 << 31;

structure! {
    /// One operation of `mmuext_op`.
    MmuExtended = "struct mmuext_op", 24 {
        /// One of [`extended`].
        command: u32 = "cmd" @ 0,
        /// A frame (`Mfn`) or a linear address.
        first: u64 = "arg1" @ 8,
        /// A number of entries, the linear address of a mask of vCPUs, or a frame.
        second: u64 = "arg2" @ 16,
    }
}

constants! {
    /// Operations of `mmuext_op`.
    extended: u32 {
        PIN_L1_TABLE = 0, "MMUEXT_PIN_L1_TABLE";
        PIN_L2_TABLE = 1, "MMUEXT_PIN_L2_TABLE";
        PIN_L3_TABLE = 2, "MMUEXT_PIN_L3_TABLE";
        PIN_L4_TABLE = 3, "MMUEXT_PIN_L4_TABLE";
        UNPIN_TABLE = 4, "MMUEXT_UNPIN_TABLE";
        NEW_BASEPTR = 5, "MMUEXT_NEW_BASEPTR";
        TLB_FLUSH_LOCAL = 6, "MMUEXT_TLB_FLUSH_LOCAL";
        INVLPG_LOCAL = 7, "MMUEXT_INVLPG_LOCAL";
        TLB_FLUSH_MULTI = 8, "MMUEXT_TLB_FLUSH_MULTI";
        INVLPG_MULTI = 9, "MMUEXT_INVLPG_MULTI";
        TLB_FLUSH_ALL = 10, "MMUEXT_TLB_FLUSH_ALL";
        INVLPG_ALL = 11, "MMUEXT_INVLPG_ALL";
        FLUSH_CACHE = 12, "MMUEXT_FLUSH_CACHE";
        SET_LDT = 13, "MMUEXT_SET_LDT";
        NEW_USER_BASEPTR = 15, "MMUEXT_NEW_USER_BASEPTR";
        CLEAR_PAGE = 16, "MMUEXT_CLEAR_PAGE";
        COPY_PAGE = 17, "MMUEXT_COPY_PAGE";
        FLUSH_CACHE_GLOBAL = 18, "MMUEXT_FLUSH_CACHE_GLOBAL";
        MARK_SUPER = 19, "MMUEXT_MARK_SUPER";
        UNMARK_SUPER = 20, "MMUEXT_UNMARK_SUPER";
    }
}

constants! {
    /// What `update_va_mapping` flushes: [`flush::TLB`] or [`flush::PAGE`] on this vCPU, on all with
    /// [`flush::ALL`], or on those of a mask whose linear address is in the other bits.
    flush: u64 {
        NONE = 0, "UVMF_NONE";
        TLB = 1, "UVMF_TLB_FLUSH";
        PAGE = 2, "UVMF_INVLPG";
        KIND_MASK = 3, "UVMF_FLUSHTYPE_MASK";
        MULTI = 0, "UVMF_MULTI";
        LOCAL = 0, "UVMF_LOCAL";
        ALL = 4, "UVMF_ALL";
    }
}

constants! {
    /// The addresses that belong to Xen in each address space (public/arch-x86/xen-x86_64.h).
    reserved: u64 {
        START = 0xffff_8000_0000_0000, "HYPERVISOR_VIRT_START";
        END = 0xffff_8800_0000_0000, "HYPERVISOR_VIRT_END";
        MACHINE_TO_PHYSICAL_START = 0xffff_8000_0000_0000, "MACH2PHYS_VIRT_START";
        MACHINE_TO_PHYSICAL_END = 0xffff_8040_0000_0000, "MACH2PHYS_VIRT_END";
    }
}

/// The entries of a top-level table that lead to the reserved addresses.
pub const RESERVED_SLOTS: core::ops::Range<usize> = 256..272;

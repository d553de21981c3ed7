//! How much memory a domain has, and which (public/memory.h).

use crate::{Mfn, Pfn};

constants! {
    /// Sub-commands of `memory_op`.
    command: u32 {
        INCREASE_RESERVATION = 0, "XENMEM_increase_reservation";
        /// Returns how many extents it has given back, also when it stops early.
        DECREASE_RESERVATION = 1, "XENMEM_decrease_reservation";
        MAXIMUM_RAM_PAGE = 2, "XENMEM_maximum_ram_page";
        CURRENT_RESERVATION = 3, "XENMEM_current_reservation";
        MAXIMUM_RESERVATION = 4, "XENMEM_maximum_reservation";
        MACHPHYS_MFN_LIST = 5, "XENMEM_machphys_mfn_list";
        /// Returns how many extents it has populated, also when it stops early.
        POPULATE_PHYSMAP = 6, "XENMEM_populate_physmap";
        ADD_TO_PHYSMAP = 7, "XENMEM_add_to_physmap";
        MEMORY_MAP = 9, "XENMEM_memory_map";
        MACHINE_MEMORY_MAP = 10, "XENMEM_machine_memory_map";
        EXCHANGE = 11, "XENMEM_exchange";
        MACHPHYS_MAPPING = 12, "XENMEM_machphys_mapping";
        SET_MEMORY_MAP = 13, "XENMEM_set_memory_map";
        MAXIMUM_GPFN = 14, "XENMEM_maximum_gpfn";
        REMOVE_FROM_PHYSMAP = 15, "XENMEM_remove_from_physmap";
        SET_POD_TARGET = 16, "XENMEM_set_pod_target";
        GET_POD_TARGET = 17, "XENMEM_get_pod_target";
        ADD_TO_PHYSMAP_BATCH = 23, "XENMEM_add_to_physmap_batch";
        MACHPHYS_COMPAT_MFN_LIST = 25, "XENMEM_machphys_compat_mfn_list";
        GET_VNUMAINFO = 26, "XENMEM_get_vnumainfo";
        ACQUIRE_RESOURCE = 28, "XENMEM_acquire_resource";
    }
}

structure! {
    /// Which extents to give back or to populate.
    Reservation = "struct xen_memory_reservation", 32 {
        /// Linear address of a list of frame numbers.
        extents: u64 = "extent_start" @ 0,
        count: u64 = "nr_extents" @ 8,
        /// Two to this power are the pages of an extent.
        order: u32 = "extent_order" @ 16,
        flags: u32 = "mem_flags" @ 20,
        domain: u16 = "domid" @ 24,
    }
}

structure! {
    /// Frames given for other frames.
    Exchange = "struct xen_memory_exchange", 72 {
        given: Reservation = "in" @ 0,
        taken: Reservation = "out" @ 32,
        /// How many of the extents given have been exchanged; zero before the call.
        exchanged: u64 = "nr_exchanged" @ 64,
    }
}

structure! {
    /// Whose reservation is asked for.
    MemoryDomain = "struct xen_memory_domain", 2 {
        domain: u16 = "domid" @ 0,
    }
}

structure! {
    /// Where the machine-to-physical table is mapped.
    MachphysMapping = "struct xen_machphys_mapping", 24 {
        start: u64 = "v_start" @ 0,
        end: u64 = "v_end" @ 8,
        /// The last frame that the table speaks of.
        last: Mfn = "max_mfn" @ 16,
    }
}

structure! {
    /// Which frames hold the machine-to-physical table.
    MachphysList = "struct xen_machphys_mfn_list", 24 {
        room: u32 = "max_extents" @ 0,
        extents: u64 = "extent_start" @ 8,
        count: u32 = "nr_extents" @ 16,
    }
}

structure! {
    /// Where to write the memory map, a list of [`E820Entry`].
    MemoryMap = "struct xen_memory_map", 16 {
        /// Room in the buffer before the call, entries written after it.
        count: u32 = "nr_entries" @ 0,
        buffer: u64 = "buffer" @ 8,
    }
}

structure! {
    /// Put something that is not of the domain's reservation into its physical map.
    AddToPhysmap = "struct xen_add_to_physmap", 24 {
        domain: u16 = "domid" @ 0,
        size: u16 = "size" @ 2,
        /// One of [`space`].
        space: u32 = "space" @ 4,
        index: u64 = "idx" @ 8,
        frame: Pfn = "gpfn" @ 16,
    }
}

constants! {
    /// What is put into a physical map.
    space: u32 {
        SHARED_INFO = 0, "XENMAPSPACE_shared_info";
        GRANT_TABLE = 1, "XENMAPSPACE_grant_table";
        GMFN = 2, "XENMAPSPACE_gmfn";
        GMFN_RANGE = 3, "XENMAPSPACE_gmfn_range";
        GMFN_FOREIGN = 4, "XENMAPSPACE_gmfn_foreign";
        DEV_MMIO = 5, "XENMAPSPACE_dev_mmio";
    }
}

structure! {
    /// Take a page out of the physical map.
    RemoveFromPhysmap = "struct xen_remove_from_physmap", 16 {
        domain: u16 = "domid" @ 0,
        frame: Pfn = "gpfn" @ 8,
    }
}

/// An entry of a memory map, as INT 15h with EAX 0xe820 gives it (ACPI, "E820 Assigned Memory Types").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct E820Entry {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// 1 is memory, 2 is reserved.
    pub kind: u32,
}

impl E820Entry {
    /// The type of memory that can be used.
    pub const MEMORY: u32 = 1;

    /// The type of what is no such memory.
    pub const RESERVED: u32 = 2;
}

impl crate::Wire for E820Entry {
    /// Unlike a C structure, it has no padding.
    const BYTES: usize = 20;

    fn decode(bytes: &[u8]) -> Self {
        Self {
            start: u64::decode(bytes),
            size: u64::decode(&bytes[8..]),
            kind: u32::decode(&bytes[16..]),
        }
    }

    fn encode(&self, bytes: &mut [u8]) {
        self.start.encode(bytes);
        self.size.encode(&mut bytes[8..]);
        self.kind.encode(&mut bytes[16..]);
    }
}

//! Grants of a domain's pages to other domains (public/grant_table.h).

use crate::Mfn;

constants! {
    /// Sub-commands of `grant_table_op`.
    command: u32 {
        MAP_GRANT_REF = 0, "GNTTABOP_map_grant_ref";
        UNMAP_GRANT_REF = 1, "GNTTABOP_unmap_grant_ref";
        SETUP_TABLE = 2, "GNTTABOP_setup_table";
        DUMP_TABLE = 3, "GNTTABOP_dump_table";
        TRANSFER = 4, "GNTTABOP_transfer";
        COPY = 5, "GNTTABOP_copy";
        QUERY_SIZE = 6, "GNTTABOP_query_size";
        UNMAP_AND_REPLACE = 7, "GNTTABOP_unmap_and_replace";
        SET_VERSION = 8, "GNTTABOP_set_version";
        GET_STATUS_FRAMES = 9, "GNTTABOP_get_status_frames";
        GET_VERSION = 10, "GNTTABOP_get_version";
        SWAP_GRANT_REF = 11, "GNTTABOP_swap_grant_ref";
        CACHE_FLUSH = 12, "GNTTABOP_cache_flush";
    }
}

constants! {
    /// The status of an operation on grants.
    status: i16 {
        OKAY = 0, "GNTST_okay";
        GENERAL_ERROR = -1, "GNTST_general_error";
        BAD_DOMAIN = -2, "GNTST_bad_domain";
        BAD_GNTREF = -3, "GNTST_bad_gntref";
        BAD_HANDLE = -4, "GNTST_bad_handle";
        BAD_VIRT_ADDR = -5, "GNTST_bad_virt_addr";
        BAD_DEV_ADDR = -6, "GNTST_bad_dev_addr";
        NO_DEVICE_SPACE = -7, "GNTST_no_device_space";
        PERMISSION_DENIED = -8, "GNTST_permission_denied";
        BAD_PAGE = -9, "GNTST_bad_page";
        BAD_COPY_ARG = -10, "GNTST_bad_copy_arg";
        ADDRESS_TOO_BIG = -11, "GNTST_address_too_big";
        EAGAIN = -12, "GNTST_eagain";
        NO_SPACE = -13, "GNTST_no_space";
    }
}

constants! {
    /// Flags of an entry. Its type is in the bits of [`entry::TYPE_MASK`].
    entry: u16 {
        INVALID = 0, "GTF_invalid";
        PERMIT_ACCESS = 1, "GTF_permit_access";
        ACCEPT_TRANSFER = 2, "GTF_accept_transfer";
        TRANSITIVE = 3, "GTF_transitive";
        TYPE_MASK = 3, "GTF_type_mask";
        READONLY = 1 << 2, "GTF_readonly";
        /// Set by Xen while the page is mapped or read.
        READING = 1 << 3, "GTF_reading";
        /// Set by Xen while the page is mapped writable or written.
        WRITING = 1 << 4, "GTF_writing";
        PWT = 1 << 5, "GTF_PWT";
        PCD = 1 << 6, "GTF_PCD";
        PAT = 1 << 7, "GTF_PAT";
        SUB_PAGE = 1 << 8, "GTF_sub_page";
    }
}

constants! {
    /// Entries with a purpose, and how many are kept for such.
    reserved: u32 {
        CONSOLE = 0, "GNTTAB_RESERVED_CONSOLE";
        XENSTORE = 1, "GNTTAB_RESERVED_XENSTORE";
        COUNT = 8, "GNTTAB_NR_RESERVED_ENTRIES";
    }
}

constants! {
    /// How a grant is mapped.
    map: u32 {
        DEVICE = 1 << 0, "GNTMAP_device_map";
        HOST = 1 << 1, "GNTMAP_host_map";
        READONLY = 1 << 2, "GNTMAP_readonly";
        APPLICATION = 1 << 3, "GNTMAP_application_map";
        /// The address is that of a page-table entry, in machine memory.
        CONTAINS_PTE = 1 << 4, "GNTMAP_contains_pte";
        /// What the guest wants in the available bits of the entry.
        AVAILABLE_MASK = 0xffff_0000, "GNTMAP_guest_avail_mask";
    }
}

constants! {
    /// Which sides of a copy are named by grants.
    copy: u16 {
        SOURCE_GREF = 1, "GNTCOPY_source_gref";
        DEST_GREF = 2, "GNTCOPY_dest_gref";
    }
}

structure! {
    /// An entry of a table of version 1.
    EntryV1 = "struct grant_entry_v1", 8 {
        /// Of [`entry`].
        flags: u16 = "flags" @ 0,
        domain: u16 = "domid" @ 2,
        frame: u32 = "frame" @ 4,
    }
}

structure! {
    /// An entry of version 2 for a whole page. The flags of its use are in a word elsewhere.
    EntryV2 = "union grant_entry_v2", 16 {
        flags: u16 = "full_page.hdr.flags" @ 0,
        domain: u16 = "full_page.hdr.domid" @ 2,
        padding: u32 = "full_page.pad0" @ 4,
        frame: u64 = "full_page.frame" @ 8,
    }
}

structure! {
    /// An entry of version 2 with [`entry::SUB_PAGE`].
    EntryV2SubPage = "__typeof__(((union grant_entry_v2 *)0)->sub_page)", 16 {
        flags: u16 = "hdr.flags" @ 0,
        domain: u16 = "hdr.domid" @ 2,
        offset: u16 = "page_off" @ 4,
        length: u16 = "length" @ 6,
        frame: u64 = "frame" @ 8,
    }
}

structure! {
    /// An entry of version 2 with [`entry::TRANSITIVE`]: somebody else's grant.
    EntryV2Transitive = "__typeof__(((union grant_entry_v2 *)0)->transitive)", 12 {
        flags: u16 = "hdr.flags" @ 0,
        domain: u16 = "hdr.domid" @ 2,
        granter: u16 = "trans_domid" @ 4,
        padding: u16 = "pad0" @ 6,
        reference: u32 = "gref" @ 8,
    }
}

structure! {
    /// Map a grant.
    Map = "struct gnttab_map_grant_ref", 32 {
        address: u64 = "host_addr" @ 0,
        /// Of [`map`].
        flags: u32 = "flags" @ 8,
        reference: u32 = "ref" @ 12,
        domain: u16 = "dom" @ 16,
        /// One of [`status`].
        status: i16 = "status" @ 18,
        handle: u32 = "handle" @ 20,
        bus_address: u64 = "dev_bus_addr" @ 24,
    }
}

structure! {
    /// Unmap a grant.
    Unmap = "struct gnttab_unmap_grant_ref", 24 {
        address: u64 = "host_addr" @ 0,
        bus_address: u64 = "dev_bus_addr" @ 8,
        handle: u32 = "handle" @ 16,
        status: i16 = "status" @ 20,
    }
}

structure! {
    /// Unmap a grant and put what another address maps in its place.
    UnmapAndReplace = "struct gnttab_unmap_and_replace", 24 {
        address: u64 = "host_addr" @ 0,
        replacement: u64 = "new_addr" @ 8,
        handle: u32 = "handle" @ 16,
        status: i16 = "status" @ 20,
    }
}

structure! {
    /// Ask for the frames of the table.
    SetupTable = "struct gnttab_setup_table", 24 {
        domain: u16 = "dom" @ 0,
        count: u32 = "nr_frames" @ 4,
        status: i16 = "status" @ 8,
        frames: u64 = "frame_list" @ 16,
    }
}

structure! {
    /// Have the table printed.
    DumpTable = "struct gnttab_dump_table", 4 {
        domain: u16 = "dom" @ 0,
        status: i16 = "status" @ 2,
    }
}

structure! {
    /// Give a frame away.
    Transfer = "struct gnttab_transfer", 24 {
        frame: Mfn = "mfn" @ 0,
        domain: u16 = "domid" @ 8,
        reference: u32 = "ref" @ 12,
        status: i16 = "status" @ 16,
    }
}

structure! {
    /// One side of a [`CopyPages`].
    CopySide = "struct gnttab_copy_ptr", 16 {
        /// A grant reference in the lower half, or a frame.
        page: u64 = "u.gmfn" @ 0,
        domain: u16 = "domid" @ 8,
        offset: u16 = "offset" @ 10,
    }
}

structure! {
    /// Copy within a page of each side.
    CopyPages = "struct gnttab_copy", 40 {
        source: CopySide = "source" @ 0,
        destination: CopySide = "dest" @ 16,
        length: u16 = "len" @ 32,
        /// Of [`copy`].
        flags: u16 = "flags" @ 34,
        status: i16 = "status" @ 36,
    }
}

structure! {
    /// Ask how large the table is and may become.
    QuerySize = "struct gnttab_query_size", 16 {
        domain: u16 = "dom" @ 0,
        count: u32 = "nr_frames" @ 4,
        limit: u32 = "max_nr_frames" @ 8,
        status: i16 = "status" @ 12,
    }
}

structure! {
    /// Choose the version of the table.
    SetVersion = "struct gnttab_set_version", 4 {
        version: u32 = "version" @ 0,
    }
}

structure! {
    /// Ask for the version of a table.
    GetVersion = "struct gnttab_get_version", 8 {
        domain: u16 = "dom" @ 0,
        padding: u16 = "pad" @ 2,
        version: u32 = "version" @ 4,
    }
}

structure! {
    /// Ask for the frames with the flags of version 2.
    GetStatusFrames = "struct gnttab_get_status_frames", 16 {
        count: u32 = "nr_frames" @ 0,
        domain: u16 = "dom" @ 4,
        status: i16 = "status" @ 6,
        frames: u64 = "frame_list" @ 8,
    }
}

structure! {
    /// Exchange two entries.
    Swap = "struct gnttab_swap_grant_ref", 12 {
        first: u32 = "ref_a" @ 0,
        second: u32 = "ref_b" @ 4,
        status: i16 = "status" @ 8,
    }
}

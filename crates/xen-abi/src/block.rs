//! Block devices (public/io/blkif.h). The structures are those of 64-bit guests.

constants! {
    /// Operations.
    operation: u8 {
        READ = 0, "BLKIF_OP_READ";
        WRITE = 1, "BLKIF_OP_WRITE";
        WRITE_BARRIER = 2, "BLKIF_OP_WRITE_BARRIER";
        FLUSH_DISKCACHE = 3, "BLKIF_OP_FLUSH_DISKCACHE";
        DISCARD = 5, "BLKIF_OP_DISCARD";
        /// The segments are in pages of their own.
        INDIRECT = 6, "BLKIF_OP_INDIRECT";
    }
}

constants! {
    /// What a request comes to.
    status: i16 {
        OKAY = 0, "BLKIF_RSP_OKAY";
        ERROR = -1, "BLKIF_RSP_ERROR";
        EOPNOTSUPP = -2, "BLKIF_RSP_EOPNOTSUPP";
    }
}

constants! {
    /// How much a request may have.
    limit: u32 {
        SEGMENTS = 11, "BLKIF_MAX_SEGMENTS_PER_REQUEST";
        INDIRECT_PAGES = 8, "BLKIF_MAX_INDIRECT_PAGES_PER_REQUEST";
        /// An entry of the ring: a request is longer than a response.
        ENTRY_BYTES = 112, "sizeof(union blkif_sring_entry)";
        /// How many a ring of one page has.
        PAGE_ENTRIES = 32, "__CONST_RING_SIZE(blkif, 4096)";
    }
}

constants! {
    /// Of a disk, in the key `info`.
    disk: u32 {
        CDROM = 1, "VDISK_CDROM";
        REMOVABLE = 2, "VDISK_REMOVABLE";
        READONLY = 4, "VDISK_READONLY";
    }
}

/// Bytes of the sectors in which requests count.
pub const SECTOR_BYTES: u64 = 512;

structure! {
    /// A part of a page.
    Segment = "struct blkif_request_segment", 8 {
        reference: u32 = "gref" @ 0,
        first_sector: u8 = "first_sect" @ 4,
        last_sector: u8 = "last_sect" @ 5,
    }
}

structure! {
    /// A request with its segments.
    Request = "struct blkif_request", 112 {
        /// One of [`operation`].
        operation: u8 = "operation" @ 0,
        count: u8 = "nr_segments" @ 1,
        handle: u16 = "handle" @ 2,
        id: u64 = "id" @ 8,
        sector: u64 = "sector_number" @ 16,
        segments: [Segment; 11] = "seg" @ 24,
    }
}

structure! {
    /// A request of [`operation::DISCARD`].
    Discard = "struct blkif_request_discard", 32 {
        operation: u8 = "operation" @ 0,
        flag: u8 = "flag" @ 1,
        handle: u16 = "handle" @ 2,
        id: u64 = "id" @ 8,
        sector: u64 = "sector_number" @ 16,
        sectors: u64 = "nr_sectors" @ 24,
    }
}

structure! {
    /// A request of [`operation::INDIRECT`].
    Indirect = "struct blkif_request_indirect", 64 {
        operation: u8 = "operation" @ 0,
        indirect_operation: u8 = "indirect_op" @ 1,
        count: u16 = "nr_segments" @ 2,
        id: u64 = "id" @ 8,
        sector: u64 = "sector_number" @ 16,
        handle: u16 = "handle" @ 24,
        references: [u32; 8] = "indirect_grefs" @ 28,
    }
}

structure! {
    /// A response.
    Response = "struct blkif_response", 16 {
        id: u64 = "id" @ 0,
        operation: u8 = "operation" @ 8,
        /// One of [`status`].
        status: i16 = "status" @ 10,
    }
}

//! Every limit of this crate in one place.

/// Pages of a ring, and the exponent that a front-end is told.
pub const MAX_RING_PAGES: usize = 1 << MAX_RING_PAGE_ORDER;
/// See [`MAX_RING_PAGES`].
pub const MAX_RING_PAGE_ORDER: u32 = 4;

/// Attempts to mark a grant's entry as in use, while the domain changes the entry.
pub const MAX_MARK_ATTEMPTS: usize = 8;

/// Requests of a disk's turn.
pub const MAX_BATCH_REQUESTS: usize = 32;

/// Bytes of a disk's turn. The request that passes it is still of the turn.
pub const MAX_BATCH_BYTES: u64 = 512 << 10;

/// Bytes of a disk's requests that are under way.
pub const MAX_BYTES_UNDER_WAY: u64 = 2 << 20;

/// Segments of an indirect request.
pub const MAX_INDIRECT_SEGMENTS: usize = 256;

/// Extents of a virtual block device.
pub const MAX_EXTENTS: usize = 4096;

//! Every limit of this crate in one place.

/// Entries of a page table, and descriptors of a frame.
pub const TABLE_ENTRIES: usize = 512;

/// Tables that are on the stack of a promotion or demotion: one of each level, and one more of L2-L4 each, which a
/// linear entry leads to.
pub const MAX_STEPS: usize = 7;

/// Entries of a GDT that a guest may have; those above are the hypervisor's.
pub const MAX_GDT_ENTRIES: usize = 14 * TABLE_ENTRIES;

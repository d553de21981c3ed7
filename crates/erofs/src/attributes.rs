//! The attributes of a file of the tree.

/// What a file is besides its contents. A caller may say otherwise before it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Kind and permissions (`st_mode`). The kind stays what it is.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// When it was modified last, in seconds since 1970. Linux shows it for all times of the file.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: u32,
    /// Extended attributes (xattr(7)).
    pub extended: Extended,
}

/// Extended attributes, by name and value.
pub type Extended = Vec<(Vec<u8>, Vec<u8>)>;

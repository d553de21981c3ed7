//! Every limit of the writer in one place. Those of the format itself are in [`crate::format`].

/// Bytes that are read or written at once, in whole blocks.
pub const BUFFER_BYTES: usize = 1 << 20;

/// The longest file whose contents stand behind its inode.
pub const MAX_INLINE_BYTES: usize = 256;

/// Directories that are open at once, however deep the tree is.
pub const MAX_OPEN_DIRECTORIES: usize = 64;

/// The longest value of an extended attribute, and the longest list of their names (`XATTR_SIZE_MAX`,
/// `XATTR_LIST_MAX`).
pub const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

/// The longest name of a file (`EROFS_NAME_LEN`).
pub const MAX_NAME_BYTES: usize = 255;

/// The longest text of a symbolic link (`PATH_MAX`, with a NUL).
pub const MAX_LINK_BYTES: usize = 4095;

//! Limits on what is read of a disk.

/// The largest kernel.
pub const KERNEL_MAX_BYTES: u64 = 256 << 20;

/// The largest initial RAM disk, without what fills its last archive up.
pub const INITRD_MAX_BYTES: u64 = 1 << 30;

/// To a multiple of so many bytes the archives of an initial RAM disk are filled up (buffer-format.rst of Linux).
pub const ARCHIVE_ALIGNMENT: usize = 4;

/// The largest file of a configuration.
pub const TEXT_MAX_BYTES: u64 = 4 << 20;

/// The longest command line of a kernel, and the longest title.
pub const LINE_MAX_BYTES: usize = 16 << 10;

/// The most partitions that are looked at.
pub const PARTITIONS_MAX: usize = 128;

/// The most entries of a menu.
pub const ENTRIES_MAX: usize = 1024;

/// How deep blocks, files and functions of a script may lie in each other.
pub const DEPTH_MAX: usize = 16;

/// The most commands of scripts that are carried out.
pub const STEPS_MAX: usize = 100_000;

/// The longest value of a variable, in bytes.
pub const VALUE_MAX_BYTES: usize = 64 << 10;

/// The most that is asked of who reads file systems that this crate does not.
pub const REQUESTS_MAX: usize = 10_000;

/// The longest line of its answers.
pub const REPLY_MAX_BYTES: usize = 256;

/// The longest path there, and the longest target of a symbolic link (`PATH_MAX` of Linux).
pub const PATH_MAX_BYTES: usize = 4096;

/// The most of the paths in a directory there.
pub const LIST_MAX_BYTES: usize = 1 << 20;

/// The most symbolic links that a path leads through there (`MAXSYMLINKS` of Linux).
pub const LINKS_MAX: usize = 40;

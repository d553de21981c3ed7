//! Every limit of the file server and of its rings in one place.

use std::time::Duration;

/// Bytes of the longest message on the control socket.
pub const MAX_MESSAGE_BYTES: usize = 32 << 10;

/// Ranges of guest memory in one request.
pub const MAX_RANGES: usize = 1024;

/// Shares of one server. Their descriptors fit into one message (`SCM_MAX_FD` is 253).
pub const MAX_SHARES: usize = 32;

/// Descriptors of the first message: the memory's file and, for each share, its directory, the file of its rings
/// and its socket.
pub const MAX_DESCRIPTORS: usize = 3 * MAX_SHARES + 1;

/// Bytes of messages that a ring holds: several times the longest message.
pub const RING_DATA_BYTES: u64 = 64 << 10;

/// Threads that serve one share.
pub const SHARE_THREADS: usize = 4;

/// How long a thread of the server polls its ring before it sleeps: somewhat more than waking a thread costs.
pub const WATCH_TIMEOUT: Duration = Duration::from_micros(100);

/// After so many polls in vain a thread sleeps at once, until a request has come early by itself.
pub const MAX_VAIN_WATCHES: u32 = 4;

/// Descriptors that the server keeps for everything but files that the guest knows.
pub const RESERVED_DESCRIPTORS: usize = 64;

/// Bytes of the longest request, its data not counted: an extended attribute (`XATTR_SIZE_MAX`) and
/// its name.
pub const MAX_ARGUMENT_BYTES: u64 = (64 << 10) + 1024;

/// Pages of data in one request.
pub const MAX_DATA_PAGES: u16 = 256;

/// The same in bytes.
pub const MAX_DATA_BYTES: u32 = MAX_DATA_PAGES as u32 * 4096;

/// From so many bytes on, moving the data takes longer than waking a thread.
pub const MUCH_DATA_BYTES: u32 = 64 << 10;

/// Requests that the guest's kernel keeps in flight in the background.
pub const MAX_BACKGROUND_REQUESTS: u16 = 64;

/// The most bytes that one `COPY_FILE_RANGE` copies; the guest asks again for the rest.
pub const MAX_COPY_BYTES: usize = 1 << 30;

/// Extended attributes that a 9p guest reads or writes at the same time, whose values the server keeps.
pub const MAX_ATTRIBUTE_FIDS: usize = 64;

/// Bytes of the longest 9p message that a guest may agree on, and of the shortest.
pub const MAX_NINE_MESSAGE_BYTES: u32 = 512_000;
pub const MIN_NINE_MESSAGE_BYTES: u32 = 4096;

/// Names in one walk of 9p (`P9_MAXWELEM`).
pub const MAX_WALK_NAMES: u16 = 16;

/// Bytes of names that the server asks the host for at once.
pub const NAMES_BYTES: usize = 32 << 10;

/// The most bytes of names in one answer.
pub const MAX_NAMES_ANSWER_BYTES: usize = 1 << 20;

/// The longest value of an extended attribute, and the longest list of their names (`XATTR_SIZE_MAX`,
/// `XATTR_LIST_MAX`).
pub const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

/// The longest attribute that records an owner or capabilities ([`crate::owner`]).
pub const MAX_OWNER_BYTES: usize = 64;

/// Directories between a file and the root of its share. With more components no path is short enough (`PATH_MAX`).
pub const MAX_DEPTH_DIRECTORIES: usize = 2048;

/// Files that a guest may know of a share, whatever its memory.
pub const MIN_FILES: usize = 1 << 20;

/// Beyond that, the guest has so much memory for each file that it may know: what Linux needs at least (`struct
/// fuse_inode` and `struct dentry`).
pub const GUEST_BYTES_PER_FILE: u64 = 1 << 10;

/// Closed files and directories on the way to them that the server notes. A guest that has more directories made on
/// the way to a closed name finds them empty.
pub const MAX_CLOSED_FILES: usize = 1 << 18;

/// Bytes of a share's saved state that the server reads: some 60 for each file that the guest knows.
pub const MAX_STATE_BYTES: u64 = 1 << 30;

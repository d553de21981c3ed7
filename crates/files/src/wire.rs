//! The FUSE protocol, version 7.36, as Linux speaks it (include/uapi/linux/fuse.h).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version that we speak; what it has beyond that of an older kernel is not used.
pub const MAJOR: u32 = 7;
pub const MINOR: u32 = 36;

/// The oldest version that has all that we rely on.
pub const OLDEST_MINOR: u32 = 31;

/// The file that is the root of each mount (`FUSE_ROOT_ID`).
pub const ROOT: u64 = 1;

/// Declares structures of the protocol, without padding of the compiler's.
macro_rules! structures {
    ($($(#[$about:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $kind,)* }
    )* };
}

structures! {
    /// Before every request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Before every answer.
    OutHeader { len: u32, error: i32, unique: u64, }
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    ForgetIn { nlookup: u64, }
    BatchForgetIn { count: u32, dummy: u32, }
    ForgetOne { nodeid: u64, nlookup: u64, }
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64, }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    MkdirIn { mode: u32, umask: u32, }
    RenameIn { newdir: u64, }
    Rename2In { newdir: u64, flags: u32, padding: u32, }
    LinkIn { oldnodeid: u64, }
    OpenIn { flags: u32, open_flags: u32, }
    OpenOut { fh: u64, open_flags: u32, padding: u32, }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    ReadIn {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32,
        lock_owner: u64, flags: u32, padding: u32,
    }
    WriteOut { size: u32, padding: u32, }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32, }
    SetxattrIn { size: u32, flags: u32, }
    GetxattrIn { size: u32, padding: u32, }
    GetxattrOut { size: u32, padding: u32, }
    /// What kernels before flags2 (7.36) send of `InitIn`.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32, }
    LseekOut { offset: u64, }
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    /// Before each name of a directory; what follows is padded to eight bytes.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32, }
}

/// Declares what can be asked for, and what it is called.
macro_rules! opcodes {
    ($($name:ident = $number:literal,)*) => {
        /// Requests.
        pub mod opcode {
            $(pub const $name: u32 = $number;)*

            /// What FUSE calls a request; none if it is none that we carry out.
            pub const fn name(number: u32) -> Option<&'static str> {
                match number {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// Whether a program mostly waits for the answer, and not for long: neither for a disk nor for much
            /// data, of which the guest's kernel may have asked for more than anybody waits for.
            pub const fn is_brief(number: u32) -> bool {
                !matches!(
                    number,
                    READ | FSYNC | FSYNCDIR | SYNCFS | FALLOCATE | COPY_FILE_RANGE | FORGET
                        | BATCH_FORGET
                )
            }
        }
    };
}

opcodes! {
    LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8,
    MKDIR = 9, UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16,
    STATFS = 17, RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23,
    REMOVEXATTR = 24, INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29, FSYNCDIR = 30,
    CREATE = 35, INTERRUPT = 36, DESTROY = 38, BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44,
    RENAME2 = 45, LSEEK = 46, COPY_FILE_RANGE = 47, SYNCFS = 50,
}

bitflags::bitflags! {
    /// What kernel and server can, as they agree on it at first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InitFlags: u32 {
        const ASYNC_READ = 1 << 0;
        const ATOMIC_O_TRUNC = 1 << 3;
        const BIG_WRITES = 1 << 5;
        const AUTO_INVAL_DATA = 1 << 12;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const WRITEBACK_CACHE = 1 << 16;
        const NO_OPEN_SUPPORT = 1 << 17;
        const PARALLEL_DIROPS = 1 << 18;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
    }

    /// What of a file is to be changed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SetattrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const FH = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }
}

/// `FUSE_GETATTR_FH`: the handle is meant.
pub const GETATTR_FH: u32 = 1;
/// `FOPEN_KEEP_CACHE`.
pub const OPEN_KEEP_CACHE: u32 = 1 << 1;

/// `FUSE_OPEN_KILL_SUIDGID`.
pub const OPEN_KILL_SUIDGID: u32 = 1;
/// `FUSE_WRITE_KILL_SUIDGID`.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_FSYNC_FDATASYNC`.
pub const FSYNC_FDATASYNC: u32 = 1;

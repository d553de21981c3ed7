//! The 9P2000.L protocol as Linux speaks it (include/net/9p/9p.h; diod's protocol.md). Numbers are little-endian, and
//! a string has its length before it, and no end.

use std::ffi::CString;

use rustix::io::Errno;

use super::super::request::is_component;
use crate::wire::Attr;

/// What the protocol calls itself.
pub const VERSION: &[u8] = b"9P2000.L";

/// What it answers to who speaks another.
pub const UNKNOWN_VERSION: &[u8] = b"unknown";

/// What trees are called. They are the same one for kernels that do not do the same.
pub const TREES: [(&[u8], Tree); 4] = [
    (b"", Tree::Usual),
    (b"/", Tree::Usual),
    (b"appending", Tree::Appending),
    (b"unkept", Tree::Unkept),
];

/// What a guest's kernel needs of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tree {
    /// Nothing else.
    #[default]
    Usual,
    /// What is opened to append to is written at its end, and not where the guest takes that to be: for Linux before
    /// 6.4, which writes through, and does not lock a file to append to it.
    Appending,
    /// What is opened only to be read is read from here each time, for Linux from 6.8 on, which writes what it has
    /// written before it reads so. It believes what it keeps as long as anybody has the file open, whatever the host
    /// does to it: who follows a log would find zeros.
    Unkept,
}

/// Bytes before each message: its length, its kind, its tag.
pub const HEAD_BYTES: usize = 7;

/// The same with the count that data of an answer have before them.
pub const DATA_HEAD_BYTES: usize = HEAD_BYTES + 4;

/// What a write has before its data.
pub const WRITE_HEAD_BYTES: usize = HEAD_BYTES + 16;

/// Declares kinds of requests, and what they are called. An answer's kind is one more.
macro_rules! kinds {
    ($($name:ident = $number:literal,)*) => {
        /// Kinds of messages.
        pub mod kind {
            $(pub const $name: u8 = $number;)*
        }
    };
}

kinds! {
    NONE = 0, ERROR = 6, STATFS = 8, OPEN = 12, CREATE = 14, SYMLINK = 16, MKNOD = 18,
    RENAME = 20, READLINK = 22, GETATTR = 24, SETATTR = 26, XATTRWALK = 30, XATTRCREATE = 32,
    READDIR = 40, FSYNC = 50, LOCK = 52, GETLOCK = 54, LINK = 70, MKDIR = 72, RENAMEAT = 74,
    UNLINKAT = 76, VERSION = 100, ATTACH = 104, FLUSH = 108, WALK = 110, READ = 116,
    WRITE = 118, CLUNK = 120, REMOVE = 122,
}

bitflags::bitflags! {
    /// What of a file is to be changed (`P9_ATTR_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SetValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const ATIME_SET = 1 << 7;
        const MTIME_SET = 1 << 8;
    }
}

/// All attributes but a time of birth and a generation (`P9_STATS_BASIC`).
pub const BASIC_ATTRIBUTES: u64 = 0x7ff;

/// What a file system of this kind calls itself (`V9FS_MAGIC`).
pub const MAGIC: u32 = 0x0102_1997;

/// `P9_LOCK_SUCCESS`, and that there is no lock (`P9_LOCK_TYPE_UNLCK`).
pub const LOCK_SUCCESS: u8 = 0;
pub const NO_LOCK: u8 = 2;

/// A user who has a name and no number (`P9_NONUNAME`), and the number that he gets.
pub const NO_USER: u32 = u32::MAX;
pub const NOBODY: u32 = 65534;

/// Bytes of an entry of a directory, its name not counted: no more than FUSE's has.
pub const ENTRY_BYTES: usize = 24;

/// What is left to read of a message.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn bytes<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], Errno> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(*first)
    }

    pub fn u8(&mut self) -> Result<u8, Errno> {
        self.bytes().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, Errno> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Errno> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Errno> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// The next string, as it is.
    pub fn string(&mut self) -> Result<&'a [u8], Errno> {
        let length = usize::from(self.u16()?);
        let (string, rest) = self.0.split_at_checked(length).ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(string)
    }

    /// The next string, which is to be one of C's.
    pub fn text(&mut self) -> Result<CString, Errno> {
        CString::new(self.string()?).map_err(|_| Errno::INVAL)
    }

    /// The next string, which is to be the name of something in a directory.
    pub fn name(&mut self) -> Result<CString, Errno> {
        self.text().and_then(|name| match is_component(name.as_bytes()) {
            true => Ok(name),
            false => Err(Errno::INVAL),
        })
    }
}

/// A message that is being made.
#[derive(Default)]
pub struct Out(pub Vec<u8>);

impl Out {
    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A string of at most 64 KiB less one.
    pub fn string(self, string: &[u8]) -> Self {
        let string = &string[..string.len().min(u16::MAX.into())];
        let mut with = self.u16(string.len() as u16);
        with.0.extend(string);
        with
    }

    pub fn qid(self, qid: &Qid) -> Self {
        self.u8(qid.kind).u32(qid.version).u64(qid.path)
    }
}

/// What a file is known by to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Qid {
    kind: u8,
    version: u32,
    path: u64,
}

impl Qid {
    /// That of a file with these attributes. Its version is another when the contents are; it is not zero, which means
    /// to Linux (from 6.4 on) that they must not be kept.
    pub fn of(attr: &Attr, apart: u64) -> Self {
        let version = (attr.mtime as u32)
            .wrapping_mul(0x9e37_79b1)
            .wrapping_add(attr.mtimensec)
            .wrapping_add((attr.size as u32).rotate_left(16));
        Self { version: version | 1, ..Self::of_entry(attr.ino, attr.mode >> 12, apart) }
    }

    /// The same of what must not be kept.
    pub fn unkept(self) -> Self {
        Self { version: 0, ..self }
    }

    /// That of an entry of a directory, of which the type is known as in a mode. The same file is another where it is
    /// mounted `apart` ([`super::super::inodes::Inode::apart`]): Linux knows a directory in one place.
    pub fn of_entry(number: u64, kind: u32, apart: u64) -> Self {
        const DIRECTORY: u32 = 0o04;
        const LINK: u32 = 0o12;
        let kind = match kind {
            DIRECTORY => 0x80,
            LINK => 0x02,
            _ => 0,
        };
        Self { kind, version: 0, path: number ^ apart }
    }
}

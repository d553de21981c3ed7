//! Writes a tree of files as a read-only file system that Linux mounts: EROFS, uncompressed.
//!
//! What it is not: a reader, and no tool for all that the format can. No kept crate writes it: `erofs` is a
//! beginning, `erofs-rs` reads, and the writer in `composefs` leaves the files' contents elsewhere.
//!
//! What rules it:
//!
//! 1. *The tree is read once, and as it is.* Each file is opened by the descriptor under which its kind was seen;
//!    symbolic links are never followed. Whatever changes meanwhile is an [`Error`], or is not in the result:
//!    files and directories have the same times before and after they are read. There is no result that Linux
//!    could find broken.
//! 2. *The same tree makes the same bytes*: entries are in the order of their names, nothing says when or where it was
//!    written, and blocks of zeroes are holes of the file, whether or not they were before.
//! 3. *What is needed to list files lies together*: contents come first, in the order of the tree, then what of
//!    directories fills blocks, then all inodes, those of a directory beside each other. Linux reads a block of
//!    metadata when it first needs it, and each holds some 60 inodes. So only the contents of tiny files stand
//!    behind their inodes.
//! 4. *The super block comes last.* What is written halfway is no file system.

#![forbid(unsafe_code)]

pub mod format;
mod output;
mod place;
mod tree;

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use self::format::{BLOCK_BYTES, MAGIC, SUPER_OFFSET};
use self::output::Output;
use self::tree::Walk;

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

/// Why a tree cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the tree.
    #[error("cannot read {path}: {error}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// Somebody is at work there.
    #[error("{path} changed while it was read; try again when nobody changes \
             it", path = .0.display())]
    Changed(PathBuf),
    /// Something is mounted there.
    #[error("another file system is mounted at {path}", path = .0.display())]
    Mounted(PathBuf),
    /// An attribute that cannot be kept.
    #[error("{path} has an attribute that cannot be kept, of an unknown kind or too long: \
             {name:?}", path = path.display())]
    Attribute {
        /// The file.
        path: PathBuf,
        /// The attribute's name.
        name: String,
    },
    /// There is too much of it.
    #[error("there are more than 2^32 files or 16 TiB")]
    TooLarge,
    /// What is written.
    #[error("cannot write the file system: {0}")]
    Write(#[from] io::Error),
}

/// Which file system it is: two with the same contents have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// That of the file system in `file`; none if there is none.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn read(file: &File) -> io::Result<Option<Identity>> {
        use std::os::unix::fs::FileExt;
        let mut block = [0; BLOCK_BYTES];
        match file.read_exact_at(&mut block, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
        let (magic, uuid) = (&block[SUPER_OFFSET..][..4], &block[SUPER_OFFSET + 48..][..16]);
        let is_ours = magic == MAGIC.to_le_bytes();
        Ok(uuid.try_into().ok().filter(|_| is_ours).map(Identity))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// Writes all that is below the directory `root` to `file`, which is empty, and has the disk have it. `look` sees each
/// file before it is written; `path` is the root's name in errors.
///
/// # Errors
///
/// [`Error`]. What is in the file then is no file system.
pub fn write(
    root: BorrowedFd<'_>,
    path: &Path,
    file: &File,
    look: &dyn Fn(&mut Attributes),
) -> Result<Identity, Error> {
    let mut output = Output::new(file);
    output.skip_block()?;
    let tree = Walk::new(&mut output, path, look).run(root)?;
    place::write(&tree, &mut output)?;
    output.finish()
}

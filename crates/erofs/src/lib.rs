//! Writes a tree of files as a read-only file system that Linux mounts: EROFS, uncompressed.
//!
//! What it is not: a reader, or a tool for all features of the format. No maintained crate writes
//! it: `erofs` is a beginning, `erofs-rs` reads, and the writer in `composefs` leaves the files'
//! contents elsewhere.
//!
//! What rules it:
//!
//! 1. *The tree is read once, and as it is.* The walk opens each file by the descriptor under which
//!    it saw its type, and never follows symbolic links. What changes meanwhile is an [`Error`], or
//!    is not in the result: files and directories have the same times before and after they are
//!    read. There is no result that Linux could find broken.
//! 2. *The same tree makes the same bytes.* Entries are in the order of their names, nothing
//!    records when or where the file system was written, and blocks of zeroes are holes of the
//!    file, whether or not they were before.
//! 3. *What is needed to list files lies together.* Contents come first, in the order of the tree,
//!    then the blocks of directories, then all inodes, those of a directory beside each other.
//!    Linux reads a block of metadata when it first needs it, and each holds some 60 inodes. So
//!    only the contents of tiny files stand behind their inodes.
//!    What comes from a [`Builder`] has its contents in the order in which they came.
//! 4. *The super block is written last.* A file that is written halfway is no file system.

#![forbid(unsafe_code)]

mod attributes;
pub mod builder;
mod error;
pub mod format;
mod identity;
mod limits;
mod output;
mod place;
mod tree;

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::path::Path;

pub use self::attributes::{Attributes, Extended};
pub use self::builder::Builder;
pub use self::error::Error;
pub use self::identity::Identity;
use self::output::Output;
use self::tree::Walk;

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

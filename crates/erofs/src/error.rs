//! Why a tree cannot be written.

use std::io;
use std::path::PathBuf;

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
    /// What cannot be the name of a file, or what a symbolic link cannot say.
    #[error("{0:?} is no name that a file can have there")]
    Name(String),
    /// What a file was to have.
    #[error("cannot read the contents of a file: {0}")]
    Contents(io::Error),
    /// There is too much of it.
    #[error("there are more than 2^32 files or 16 TiB")]
    TooLarge,
    /// What is written.
    #[error("cannot write the file system: {0}")]
    Write(#[from] io::Error),
}

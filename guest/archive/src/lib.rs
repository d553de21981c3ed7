//! Trees of files as streams of tar: what `biv cp` sends into a guest and takes out of it.
//!
//! What it is: a packer and an unpacker, the same code on both ends, because a guest need not have a tar.
//! What it is not: a tar for everything. Sparse files, extended attributes and fractions of seconds are left
//! out; of what others have packed it reads names and links of any length (GNU's and POSIX's).
//!
//! What rules it:
//!
//! 1. *A stream is its sender's allegation.* The guest that packs may want to write anywhere on the host. All
//!    that is unpacked is made by one name in a directory that is open, which is reached from the destination
//!    name by name; none of these is `..`, and on the host none is a symbolic link ([`Rules::of_a_stranger`]).
//!    So it does not matter either who else changes the tree meanwhile.
//! 2. *Nothing is written that was there.* A file in the place of another is a new one; a directory, a
//!    device or a socket is not replaced.
//! 3. *What is packed is what was looked at.* Files are opened by one name in an open directory, no symbolic
//!    link is followed but the one that the user names, and what counts is the open file's kind.
//! 4. *A stream can be long, but nothing else of it*: names, links and what extends headers have limits.

#![forbid(unsafe_code)]

mod entry;
mod pack;
mod place;
#[cfg(test)]
mod tests;
mod unpack;

pub use pack::{Source, names, pack};
pub use place::{Destination, names_contents};
pub use unpack::{Owner, Rules, unpack};

use std::io;
use std::path::{Path, PathBuf};

/// Why something is not copied, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error("{path}: {error}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// It is there, and would be lost.
    #[error("{path} is there already, and is {what}", path = path.display())]
    InTheWay {
        /// Where.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// What it is to be copied to.
    #[error("{path} is no directory", path = .0.display())]
    NoDirectory(PathBuf),
    /// It would be outside of where it belongs.
    #[error("{path:?} in the stream leads out of the destination", path = .0)]
    Outside(PathBuf),
    /// The stream has something that is not understood.
    #[error("{path}: {what}", path = path.display())]
    Unknown {
        /// Which.
        path: PathBuf,
        /// What it has.
        what: &'static str,
    },
    /// It is no stream of tar.
    #[error("this is no tar archive: {0}")]
    Malformed(&'static str),
    /// The other end has gone.
    #[error("the stream ends early")]
    Short,
    /// The stream itself.
    #[error("{0}")]
    Stream(#[source] io::Error),
}

/// What is wrong with a file.
fn at(path: &Path) -> impl Fn(rustix::io::Errno) -> Error + '_ {
    |errno| Error::File { path: path.to_owned(), error: errno.into() }
}

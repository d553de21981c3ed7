//! Files that cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// A file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}", path = path.display())]
pub struct FileError {
    path: PathBuf,
    error: io::Error,
}

/// What is wrong with that file.
pub fn at(path: &Path) -> impl FnOnce(io::Error) -> FileError + use<> {
    let path = path.to_owned();
    move |error| FileError { path, error }
}

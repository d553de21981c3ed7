//! What is made in the upper layer of a root.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

/// A directory is as it is below.
pub fn copy_owner(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = fs::metadata(from)?;
    fs::set_permissions(to, metadata.permissions())?;
    chown(to, Some(metadata.uid()), Some(metadata.gid()))
}

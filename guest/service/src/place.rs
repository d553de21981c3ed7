//! Files that are to be covered by a mount.

use std::fs;
use std::io;
use std::path::Path;

/// Makes an empty file where there is none: where a link leads, if it is one that leads nowhere.
///
/// # Errors
///
/// It cannot be made.
pub fn make(path: &Path) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let place = match fs::read_link(path) {
        Ok(target) => path.parent().unwrap_or(Path::new("/")).join(target),
        Err(_) => path.to_owned(),
    };
    if let Some(directory) = place.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(place, "")
}

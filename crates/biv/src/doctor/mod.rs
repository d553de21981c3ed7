//! `biv doctor`: what this host offers and what Bivouac uses of it.

use std::io;

use crate::cli::Doctor;

/// Prints the report.
pub fn doctor(arguments: &Doctor) -> io::Result<()> {
    let _ = arguments;
    Ok(())
}

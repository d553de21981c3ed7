//! Messages to the user besides what a verb prints.

use std::io::{self, Write};

use spec::shown;

/// Says it on standard error.
pub fn say(message: &str) {
    // Standard error may be closed; the status still tells.
    let _ = writeln!(io::stderr(), "biv: {}", shown::harmless(message));
}

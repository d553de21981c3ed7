//! What a verb says on standard output.

use std::io::{self, Write};

use serde::Serialize;

/// Text.
///
/// # Errors
///
/// Those of standard output.
pub fn text(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

/// A value as JSON, for programs.
///
/// # Errors
///
/// Those of standard output.
pub fn json(value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    text(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// A reader that has seen enough is no failure.
///
/// # Errors
///
/// Any other, as a message of one line.
pub fn unless_closed(result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

//! The standard output of verbs, and the rule for untrusted text in it.
//!
//! A guest, and the process of a domain that a guest owns, choose much of what `biv` prints about
//! them: reasons, names of files, commands, the end of a console. None of it may control the user's
//! terminal: it passes [`harmless`](spec::shown::harmless) or [`line()`](spec::shown::line). (`biv
//! logs` and `biv attach` print a guest's output unchanged, because the user has asked for just
//! that.)

use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;
use spec::shown::commands;

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
    let json = serde_json::to_string_pretty(value)? + "\n";
    // JSON lets all but the first 32 be in a string as they are; outside of strings there are none.
    let mut shown = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter == '\n' || !commands(letter) {
            shown.push(letter);
        } else {
            // None of them is beyond the basic plane.
            let _ = write!(shown, "\\u{:04x}", u32::from(letter));
        }
    }
    text(&shown)
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

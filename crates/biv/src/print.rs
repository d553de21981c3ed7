//! What a verb says on standard output, and what of others' words it says at all.
//!
//! A guest, and the process of a domain that a guest owns, choose much of what is said of them: reasons, names of
//! files, commands, the end of a console. None of it commands the user's terminal: it passes [`harmless`] or
//! [`line()`]. (What is a guest's output and asked for as such, by `biv logs` or `biv attach`, is passed on as
//! it is.)

use std::fmt::Write as _;
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

/// Others' words on lines of their own: what could command a terminal is shown as text.
#[must_use]
pub fn harmless(text: &str) -> String {
    escaped(text, |letter| matches!(letter, '\n' | '\t'))
}

/// Others' words within a line: the same of what ends it.
#[must_use]
pub fn line(text: &str) -> String {
    escaped(text, |_| false)
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match commands(letter) && !is_kept(letter) {
            false => shown.push(letter),
            true => shown.extend(letter.escape_default()),
        }
    }
    shown
}

/// Whether a terminal does something else with it than to show it: control characters of ASCII and of
/// ISO 6429 (C0, DEL, C1), ends of lines and paragraphs, and what changes the direction of text (Unicode
/// Standard Annex 9, 2).
fn commands(letter: char) -> bool {
    let changes_direction = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() || changes_direction || matches!(letter, '\u{2028}' | '\u{2029}')
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_others_commands_a_terminal() {
        let check = |text: &str, alone: &str, within: &str| {
            assert_eq!((harmless(text).as_str(), line(text).as_str()), (alone, within));
        };
        check(
            "plain, \u{e4}\u{4e16}\u{1f600} \\n",
            "plain, \u{e4}\u{4e16}\u{1f600} \\n",
            "plain, \u{e4}\u{4e16}\u{1f600} \\n",
        );
        check("a\nb\tc", "a\nb\tc", "a\\nb\\tc");
        check("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}", "\\u{1b}]0;title\\u{7}");
        check("\u{9b}2J\x7f\r", "\\u{9b}2J\\u{7f}\\r", "\\u{9b}2J\\u{7f}\\r");
        check("\u{202e}exe.", "\\u{202e}exe.", "\\u{202e}exe.");
    }
}

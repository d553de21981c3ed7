//! Untrusted text on a terminal. Text from a guest, a file or another program is shown without the
//! control characters that a terminal would obey.

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
#[must_use]
pub fn commands(letter: char) -> bool {
    let changes_direction = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() || changes_direction || matches!(letter, '\u{2028}' | '\u{2029}')
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

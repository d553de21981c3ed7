//! The last lines of the guest's console, for a user whose guest has failed and who has not asked
//! to see the console. A guest that boots quietly writes only its problems there.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use locks::Unpoisoned;

use crate::recent::Recent;
use spec::shown;

/// How many lines of that are shown.
const LINES_MAX: usize = 100;

/// The last that was written to it. A clone is another end of the same.
#[derive(Debug, Clone, Default)]
pub struct Tail {
    kept: Arc<Mutex<Recent>>,
}

impl Tail {
    fn kept(&self) -> MutexGuard<'_, Recent> {
        self.kept.lock().unpoisoned()
    }
}

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.kept().add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Its last lines, indented below what is said of them. They are the guest's: nothing in them commands a
/// terminal.
impl fmt::Display for Tail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kept = self.kept();
        let text = String::from_utf8_lossy(kept.bytes());
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        for line in &lines[lines.len().saturating_sub(LINES_MAX)..] {
            write!(out, "\n  {}", shown::harmless(line))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::KEPT_MAX_BYTES;

    fn after(written: &[u8]) -> String {
        let mut tail = Tail::default();
        tail.clone().write_all(written).unwrap();
        tail.flush().unwrap();
        tail.to_string()
    }

    #[test]
    fn its_lines_are_indented_and_empty_ones_left_out() {
        assert_eq!(after(b""), "");
        assert_eq!(after(b"one\r\n\r\ntwo"), "\n  one\n  two");
    }

    #[test]
    fn what_commands_a_terminal_is_shown_as_text() {
        assert_eq!(
            after(b"\x1b[2J\x07x\xff\t\xc2\x9by\n"),
            "\n  \\u{1b}[2J\\u{7}x\u{fffd}\t\\u{9b}y"
        );
    }

    #[test]
    fn only_the_last_is_kept() {
        let many: String = (0..10_000).map(|n| format!("{n}\n")).collect();
        let shown = after(many.as_bytes());
        assert_eq!(shown.trim_start().lines().count(), LINES_MAX);
        assert!(shown.ends_with("\n  9998\n  9999"), "{shown}");
        assert!(after(&[b'x'; 3 * KEPT_MAX_BYTES]).len() <= KEPT_MAX_BYTES + 3);
    }
}

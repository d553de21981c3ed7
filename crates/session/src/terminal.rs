//! The user's terminal: in raw mode while a guest uses it, and restored in every case.
//!
//! "Every case" is: the guard is dropped, a thread panics (the hook runs before the message is
//! printed), or a signal ends `biv` (the session's loop reads signals, and then drops the guard).
//! Only SIGKILL leaves a terminal in raw mode.
//!
//! A terminal belongs to its foreground process group. A program that a shell has put into the
//! background (`biv run ... &`) neither reads the terminal nor changes it, and goes on.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::sync::{LazyLock, Mutex, Once};
use std::time::{Duration, Instant};

use locks::Unpoisoned;
use rustix::process::Pid;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr,
};

/// What the terminal is to be set to, while it is raw.
static RESTORE: Mutex<Option<Termios>> = Mutex::new(None);

/// What is done to the user's terminal while a session lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing.
    #[default]
    Lines,
    /// It gives lines, and the escape key at once.
    LinesAndKey,
    /// It is raw.
    Raw,
}

impl Mode {
    /// Raw, if it is to be.
    #[must_use]
    pub fn raw_if(raw: bool) -> Mode {
        if raw { Mode::Raw } else { Mode::Lines }
    }
}

/// A terminal in another mode; what it was when this is dropped.
#[derive(Debug)]
pub struct Raw(());

impl Raw {
    /// Puts the terminal on standard input into raw mode.
    pub fn enter() -> io::Result<Raw> {
        Self::change(Termios::make_raw)
    }

    /// Has the terminal on standard input give a line when [`Escape::KEY`] is pressed, and be otherwise as it
    /// is: lines are edited, and Ctrl-C is a signal.
    pub fn watch_key() -> io::Result<Raw> {
        Self::change(|terminal| {
            // The second end of a line is one with extensions (termios(3)).
            terminal.local_modes |= LocalModes::IEXTEN;
            terminal.special_codes[SpecialCodeIndex::VEOL2] = Escape::KEY;
        })
    }

    fn change(change: impl FnOnce(&mut Termios)) -> io::Result<Raw> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let next = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                next(panic);
            }));
        });
        let cooked = tcgetattr(stdin())?;
        let mut raw = cooked.clone();
        change(&mut raw);
        *RESTORE.lock().unpoisoned() = Some(cooked);
        if let Err(error) = tcsetattr(stdin(), OptionalActions::Now, &raw) {
            restore();
            return Err(error.into());
        }
        Ok(Raw(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// What a command on a terminal of its own is told of it, for its environment.
#[must_use]
pub fn variable() -> Vec<u8> {
    let kind = std::env::var_os("TERM").unwrap_or_else(|| "linux".into());
    [b"TERM=", kind.as_bytes()].concat()
}

/// Makes the terminal what it was, if it is raw and still ours.
fn restore() {
    let cooked = RESTORE.lock().unpoisoned().take();
    // A shell that has us in the background has seen to its terminal, and somebody else may use it.
    if let Some(cooked) = cooked.filter(|_| !is_in_background()) {
        // There is nobody left to tell if it fails: the terminal has gone.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &cooked);
    }
}

/// Whether standard input is the terminal of a session in which others are in the foreground: reading it or changing
/// it would stop us (termios(3), SIGTTIN and SIGTTOU).
#[must_use]
pub fn is_in_background() -> bool {
    // A terminal of another session has no background for us.
    tcgetpgrp(stdin()).is_ok_and(|foreground| foreground != *GROUP)
}

/// Our process group, for which a confined process cannot ask ([`know_group`]).
static GROUP: LazyLock<Pid> = LazyLock::new(rustix::process::getpgrp);

/// Learns which process group is ours: before the process is confined.
pub fn know_group() {
    LazyLock::force(&GROUP);
}

/// Whether a person sits at both standard input and standard output.
#[must_use]
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Rows and columns of the terminal.
#[must_use]
pub fn size() -> (u16, u16) {
    match tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin())) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => (24, 80),
    }
}

/// Watches what is typed for the key that ends a session, Ctrl-]: as a machine ends with it, three times
/// within a second.
#[derive(Debug)]
pub struct Escape {
    /// How often it is to be pressed.
    wanted: u8,
    presses: u8,
    first: Option<Instant>,
}

impl Default for Escape {
    fn default() -> Escape {
        Escape { wanted: 3, presses: 0, first: None }
    }
}

impl Escape {
    const KEY: u8 = 0x1d;
    const WITHIN: Duration = Duration::from_secs(1);

    /// The same, if nothing ends but the session: pressed once.
    #[must_use]
    pub fn at_once() -> Escape {
        Escape { wanted: 1, ..Escape::default() }
    }

    /// Takes what was typed at `now`; says whether it completes the escape. The key itself is
    /// passed on too, for the guest may have a use for it.
    pub fn typed(&mut self, bytes: &[u8], now: Instant) -> bool {
        for &byte in bytes {
            let expired = self.first.is_none_or(|first| now - first > Self::WITHIN);
            match (byte == Self::KEY, expired) {
                (true, true) => (self.presses, self.first) = (1, Some(now)),
                (true, false) => self.presses += 1,
                (false, _) => (self.presses, self.first) = (0, None),
            }
            if self.presses == self.wanted {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_presses_within_a_second_escape() {
        let start = Instant::now();
        let check = |typed: &[(&[u8], u64)], expected: bool| {
            let mut escape = Escape::default();
            let found = typed.iter().any(|(bytes, milliseconds)| {
                escape.typed(bytes, start + Duration::from_millis(*milliseconds))
            });
            assert_eq!(found, expected, "{typed:?}");
        };
        check(&[(b"\x1d\x1d\x1d", 0)], true);
        check(&[(b"\x1d", 0), (b"\x1d", 400), (b"\x1d", 900)], true);
        check(&[(b"\x1d", 0), (b"\x1d", 400), (b"\x1d", 1100)], false);
        check(&[(b"\x1d\x1d", 0)], false);
        check(&[(b"\x1d\x1dx\x1d", 0)], false);
        check(&[(b"ls\n", 0), (b"\x1d", 5000), (b"\x1d\x1d", 5001)], true);
        assert!(Escape::at_once().typed(b"ls\n\x1d", start));
        assert!(!Escape::at_once().typed(b"ls\n", start));
    }
}

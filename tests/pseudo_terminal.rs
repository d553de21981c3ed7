//! Programs at a terminal: a pseudo-terminal of which the test has the other side.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use locks::Unpoisoned;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, SpecialCodeIndex, Termios, Winsize, tcgetattr, tcsetwinsize};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A program at a terminal; ended when this is dropped.
pub struct AtTerminal {
    child: Child,
    terminal: File,
    before: Termios,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl AtTerminal {
    /// Starts `command` at a terminal of 24 rows and 80 columns.
    ///
    /// # Panics
    ///
    /// If the host has no terminals, or no such command.
    pub fn start(command: &mut Command) -> AtTerminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a pseudo-terminal");
        grantpt(&master).expect("a pseudo-terminal");
        unlockpt(&master).expect("a pseudo-terminal");
        let slave = ioctl_tiocgptpeer(&master, flags).expect("its other side");
        let before = tcgetattr(&slave).expect("its settings");
        set_size(&File::from(master.try_clone().expect("a descriptor")), 24, 80);
        let copy = || slave.try_clone().expect("a descriptor");
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn();
        let child = child.expect("the command can be started");
        // The command's builder holds the other side open too.
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        let terminal = File::from(master);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, its_shown) = (terminal.try_clone().expect("a descriptor"), shown.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // It ends with an error when nobody has the other side open any more.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                let mut shown = its_shown.lock().unpoisoned();
                shown.extend(&buffer[..count]);
            }
        });
        AtTerminal { child, terminal, before, shown }
    }

    /// What the terminal has shown so far.
    pub fn shown(&self) -> String {
        crate::text(&self.shown.lock().unpoisoned())
    }

    /// Waits until the terminal shows `words`.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[track_caller]
    pub fn expect(&self, words: &str) {
        self.wait_for(words, || self.shown().contains(words));
    }

    /// Waits until something is so.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    #[track_caller]
    pub fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "no {what:?} in {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether the terminal hands on keys as they are.
    ///
    /// # Panics
    ///
    /// If it has gone.
    pub fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.terminal).expect("the terminal").local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Types.
    ///
    /// # Panics
    ///
    /// If the terminal has gone.
    pub fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("the terminal");
    }

    /// Makes the window another size and says so to the program.
    pub fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.terminal, rows, columns);
        self.signal(Signal::WINCH);
    }

    /// Sends the program a signal.
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(process, signal).expect("it runs");
    }

    /// It ends with this status and leaves the terminal exactly as it was.
    ///
    /// # Panics
    ///
    /// If it does otherwise.
    #[track_caller]
    pub fn check_end(mut self, expected: i32) {
        let status = self.wait();
        assert_eq!(status.code(), Some(expected), "{}", self.shown());
        assert!(!self.is_raw(), "the terminal is left raw");
        let after = tcgetattr(&self.terminal).expect("the terminal");
        assert_eq!(settings(&after), settings(&self.before));
    }

    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end: {}", self.shown());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(terminal: &File, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal has a size");
}

/// All that tcsetattr(3) can set.
fn settings(termios: &Termios) -> ([u32; 4], [u32; 2], Vec<u8>) {
    use SpecialCodeIndex as Key;
    let keys = [
        Key::VINTR,
        Key::VQUIT,
        Key::VERASE,
        Key::VKILL,
        Key::VEOF,
        Key::VTIME,
        Key::VMIN,
        Key::VSTART,
        Key::VSTOP,
        Key::VSUSP,
        Key::VEOL,
        Key::VREPRINT,
        Key::VDISCARD,
        Key::VWERASE,
        Key::VLNEXT,
        Key::VEOL2,
    ];
    let modes = [
        termios.input_modes.bits(),
        termios.output_modes.bits(),
        termios.control_modes.bits(),
        termios.local_modes.bits(),
    ];
    let speeds = [termios.input_speed(), termios.output_speed()];
    (modes, speeds, keys.map(|key| termios.special_codes[key]).to_vec())
}

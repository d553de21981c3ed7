//! Plain machines, with kernels of a few instructions: the console, the terminal, ends of all kinds.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use tiny_kernels::{self as kernels, Kernel};

/// Longer than any of this takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Started by env(1), because who runs the tests may have it ignore signals, as nohup(1) does.
fn biv(kernel: &Kernel, arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_biv")]);
    command.args(["run", "--mem", "64M", "--kernel"]).arg(&kernel.0).args(arguments);
    command
}

#[track_caller]
fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("biv does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_console_is_on_the_standard_streams() {
    let kernel = Kernel::new("streams", kernels::ECHO);
    let mut child = biv(&kernel, &["--debug-exit"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let every_byte: Vec<u8> = (0..=255).filter(|&byte| byte != b'q').collect();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&every_byte).unwrap();
    stdin.write_all(b"q").unwrap();
    assert_eq!(wait(&mut child).code(), Some(5 << 1 | 1));
    let mut received = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut received).unwrap();
    assert_eq!(received, [b"R", &every_byte[..], b"q"].concat());
}

#[track_caller]
fn check_end(name: &str, code: &[u8], arguments: &[&str], status: i32, words: &str) {
    let kernel = Kernel::new(name, code);
    let child = biv(&kernel, arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    assert_eq!(wait(&mut child).code(), Some(status), "{name}");
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert!(message.contains(words), "{message:?} does not say {words:?}");
    assert!(message.lines().count() <= 1, "{message}");
}

#[test]
fn every_end_has_its_status() {
    check_end("triple", kernels::TRIPLE_FAULT, &[], 123, "triple fault");
    check_end("reset", kernels::RESET, &["--no-reboot"], 0, "");
    check_end("timeout", kernels::HANG, &["--timeout", "0.5"], 124, "--timeout");
}

#[test]
fn a_multiboot_kernel_is_told_its_name_and_what_the_user_says() {
    let check = |append: &[&str], expected: &str| {
        let kernel = Kernel::new("command-line", kernels::COMMAND_LINE);
        let arguments = [&["--debug-exit"], append].concat();
        let output = biv(&kernel, &arguments).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let expected = format!("{}{expected}", kernel.0.display());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    };
    check(&[], "");
    check(&["--append", "1 2"], " 1 2");
}

#[test]
fn a_reset_boots_again() {
    let kernel = Kernel::new("again", kernels::RESET);
    let mut child = biv(&kernel, &["--timeout", "1"]).stdin(Stdio::null()).spawn().unwrap();
    assert_eq!(wait(&mut child).code(), Some(124), "it reboots until time is up");
}

#[test]
fn without_the_option_there_is_no_debug_exit() {
    let kernel = Kernel::new("no-exit", kernels::ECHO);
    let mut child = biv(&kernel, &["--timeout", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"q").unwrap();
    assert_eq!(wait(&mut child).code(), Some(124));
}

#[test]
fn the_debug_console_and_the_post_port_are_there() {
    let kernel = Kernel::new("debug", kernels::DEBUG_PORTS);
    let file = std::env::temp_dir().join(format!("biv-debug-{}", std::process::id()));
    let mut with = biv(&kernel, &["--debug-exit", "--debug-console"]);
    let mut child = with.arg(&file).stdin(Stdio::null()).spawn().unwrap();
    assert_eq!(wait(&mut child).code(), Some(0x2a << 1 | 1));
    let said = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(said, b"hi");
    // Without the option the guest finds no debug console.
    let mut child = biv(&kernel, &["--debug-exit"]).stdin(Stdio::null()).spawn().unwrap();
    assert_eq!(wait(&mut child).code(), Some(0x2a << 1 | 1));
}

#[test]
fn a_debug_console_that_cannot_be_written_is_refused() {
    let kernel = Kernel::new("no-debug", kernels::DEBUG_PORTS);
    let child = biv(&kernel, &["--debug-console", "/no/such/place"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert!(message.contains("/no/such/place") && message.lines().count() == 1, "{message}");
}

/// More than the guest takes: what it does not is kept back, not lost and not hoarded.
#[test]
fn a_flood_of_input_reaches_the_guest_in_order() {
    let kernel = Kernel::new("flood", kernels::ECHO);
    let mut child = biv(&kernel, &["--debug-exit"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The kernel ends at a `q`.
    let byte = |n: u32| match (n.wrapping_mul(2_654_435_761) >> 24) as u8 {
        b'q' => b'Q',
        other => other,
    };
    let mut sent: Vec<u8> = (0..500_000).map(byte).collect();
    sent.push(b'q');
    let (mut stdin, copy) = (child.stdin.take().unwrap(), sent.clone());
    let writer = std::thread::spawn(move || stdin.write_all(&copy));
    let mut received = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut received).unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(wait(&mut child).code(), Some(5 << 1 | 1));
    assert!(received[1..] == sent, "{} of {} bytes came back", received.len(), sent.len());
}

/// A guest that takes no input leaves it with whoever sends it, and a user who takes no output
/// holds the guest up: neither makes `biv` grow.
#[test]
fn floods_that_nobody_takes_use_no_memory() {
    let check = |name: &str, code: &[u8], output_bytes: u64| {
        let kernel = Kernel::new(name, code);
        let flood = Command::new("yes").stdout(Stdio::piped()).spawn();
        let mut flood = flood.expect("`yes` of coreutils");
        let input = flood.stdout.take().unwrap();
        let mut child = biv(&kernel, &[]).stdin(input).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        // Read until it is in its stride, and then no more.
        let read = std::io::copy(&mut (&mut stdout).take(output_bytes), &mut std::io::sink());
        assert_eq!(read.unwrap(), output_bytes, "{name}");
        let before = resident_bytes(&child);
        std::thread::sleep(Duration::from_millis(1500));
        let after = resident_bytes(&child);
        child.kill().unwrap();
        child.wait().unwrap();
        flood.kill().unwrap();
        flood.wait().unwrap();
        let grown = after.saturating_sub(before);
        assert!(grown < 4 << 20, "{name}: grew from {before} to {after} bytes");
    };
    check("flood-in", kernels::HANG, 1);
    check("flood-both", kernels::BABBLE, 1 << 20);
}

/// What a process has in memory: the second field of `/proc/PID/statm`, in pages (proc(5)).
fn resident_bytes(child: &Child) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", child.id())).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_reader_that_goes_away_ends_the_machine() {
    let kernel = Kernel::new("reader", kernels::ECHO);
    let mut child = biv(&kernel, &[]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(b"anything");
    assert_eq!(wait(&mut child).code(), Some(141));
}

/// `biv` at a terminal.
struct AtTerminal {
    child: Child,
    terminal: File,
}

impl AtTerminal {
    /// Starts it and waits until the kernel has spoken.
    fn start(kernel: &Kernel, arguments: &[&str]) -> AtTerminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        let child = biv(kernel, arguments)
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave)
            .spawn()
            .unwrap();
        let mut terminal = AtTerminal { child, terminal: File::from(master) };
        terminal.expect(b'R');
        assert!(terminal.is_raw());
        terminal
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    #[track_caller]
    fn expect(&mut self, wanted: u8) {
        let mut byte = [0];
        while byte[0] != wanted {
            self.terminal.read_exact(&mut byte).expect("the terminal");
        }
    }

    fn kill(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// It ends with `status`, and leaves the terminal as it was.
    #[track_caller]
    fn check_end(mut self, status: i32) {
        assert_eq!(wait(&mut self.child).code(), Some(status));
        assert!(!self.is_raw(), "the terminal is left raw");
    }
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_reach_the_guest_as_they_are() {
    let kernel = Kernel::new("keys", kernels::ECHO);
    let mut biv = AtTerminal::start(&kernel, &["--debug-exit"]);
    for key in [0x03, 0x1a, 0x04, b'\r', 0x1c] {
        biv.terminal.write_all(&[key]).unwrap();
        biv.expect(key);
    }
    biv.terminal.write_all(b"q").unwrap();
    biv.check_end(5 << 1 | 1);
}

#[test]
fn the_key_ends_a_machine_that_hangs() {
    let kernel = Kernel::new("key", kernels::HANG);
    let mut biv = AtTerminal::start(&kernel, &[]);
    // More than the guest, the line and we would ever take.
    biv.terminal.write_all(&[b'x'; 2000]).unwrap();
    biv.terminal.write_all(b"\x1d\x1d\x1d").unwrap();
    biv.check_end(130);
}

#[test]
fn signals_end_it_and_the_terminal_is_restored() {
    let kernel = Kernel::new("signals", kernels::HANG);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let biv = AtTerminal::start(&kernel, &[]);
        biv.kill(signal);
        biv.check_end(128 + signal.as_raw());
    }
}

#[test]
fn the_terminal_is_restored_after_every_other_end() {
    let kernel = Kernel::new("restored", kernels::HANG);
    AtTerminal::start(&kernel, &["--timeout", "1"]).check_end(124);
}

#[test]
fn a_terminal_that_goes_away_ends_the_machine() {
    let kernel = Kernel::new("hangup", kernels::HANG);
    let mut biv = AtTerminal::start(&kernel, &[]);
    biv.terminal = File::open("/dev/null").unwrap();
    assert_eq!(wait(&mut biv.child).code(), Some(129));
}

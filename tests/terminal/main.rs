//! The user's terminal: given to the guest while it runs, and exactly as it was afterwards, however
//! it ends.

#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use session::terminal::Raw;
use tiny_kernels::Kernel;
use whole_machine::modes::Mode;
use whole_machine::pseudo_terminal::AtTerminal;
use whole_machine::{bivouac, in_each_mode};

/// The default guest's shell, ready for a command.
fn shell(mode: Mode) -> AtTerminal {
    let at = AtTerminal::start(&mut mode.run(&["--busybox"]));
    at.expect("bivouac:");
    assert!(at.is_raw());
    at
}

fn a_shell_that_ends_leaves_the_terminal_as_it_was(mode: Mode) {
    let mut at = shell(mode);
    at.press("exit 7\r");
    at.check_end(7);
}

fn the_shell_has_job_control_and_knows_the_windows_size(mode: Mode) {
    let mut at = shell(mode);
    at.press("stty size\r");
    at.expect("24 80");
    at.resize(50, 132);
    // The new size may come after the next command.
    at.press("until stty size | grep '50 132'; do sleep 0.1; done\r");
    at.expect("\n50 132");
    at.press("sleep 1000; echo $((6*7))-interrupted\r");
    std::thread::sleep(Duration::from_millis(500));
    at.press("\x03");
    at.press("echo $((6*7))-alive\r");
    at.expect("42-alive");
    assert!(!at.shown().contains("42-interrupted"), "{}", at.shown());
    at.press("exit 3\r");
    at.check_end(3);
}

/// In a machine that looks like the host.
#[test]
fn somebody_at_a_terminal_has_his_own_shell() {
    let started = |shell: &str| {
        let mut command = Command::new(bivouac());
        AtTerminal::start(command.arg("run").env("SHELL", shell))
    };
    let mut at = started("/bin/bash");
    at.press("echo $((6*7))-$BASH-$(shopt -q login_shell && echo login)\r");
    at.expect("42-/bin/bash-login");
    at.press("exit 7\r");
    at.check_end(7);
    // Nobody types into that.
    let mut at = started("/usr/sbin/nologin");
    at.press("echo $((6*7))-$0-$BASH-\r");
    at.expect("42-/bin/sh--");
    at.press("exit 8\r");
    at.check_end(8);
}

fn a_guest_that_crashes_leaves_the_terminal_as_it_was(mode: Mode) {
    for keys in ["echo c > /proc/sysrq-trigger\r", "reboot -f\r", "poweroff -f\r"] {
        let mut at = shell(mode);
        at.press(keys);
        at.check_end(122);
    }
}

/// In the background a machine neither reads the terminal nor changes it, and goes on; in the foreground it reads.
#[test]
fn a_machine_in_the_background_leaves_the_terminal_to_its_shell() {
    let mut shell = Command::new("env");
    shell.args(["--default-signal", "setsid", "--wait", "--ctty"]);
    shell.args(["bash", "--noprofile", "--norc", "--noediting", "-i"]).env("PS1", "ready> ");
    let mut at = AtTerminal::start(&mut shell);
    at.expect("ready> ");
    let biv = format!("{} run --busybox --", bivouac().display());
    at.press(&format!("{biv} sh -c 'echo $((6*7))-started; read line; echo got $line' &\r"));
    at.expect("42-started");
    for word in ["one", "two", "three"] {
        at.press(&format!("echo $((6*7))-{word}\r"));
        at.expect(&format!("42-{word}"));
    }
    at.press("fg\r");
    at.press("what is typed\r");
    at.expect("got what is typed");
    // What is typed before the machine has ended is its, too.
    at.wait_for("the shell's prompt", || at.shown().ends_with("ready> "));
    at.press(&format!("{biv} sh -c 'echo $((6*7))-again; sleep 1000' &\r"));
    at.expect("42-again");
    at.press("kill %1; wait %1; echo $((6*7))-ended-$?\r");
    at.expect("42-ended-143");
    at.press("exit 0\r");
    at.check_end(0);
}

#[test]
fn a_triple_fault_leaves_the_terminal_as_it_was() {
    let kernel = Kernel::new("terminal-triple", tiny_kernels::TRIPLE_FAULT);
    AtTerminal::start(Command::new(bivouac()).args(["run", "--kernel"]).arg(&kernel.0))
        .check_end(123);
}

fn signals_leave_the_terminal_as_it_was(mode: Mode) {
    for signal in [Signal::TERM, Signal::HUP, Signal::QUIT] {
        let at = shell(mode);
        at.signal(signal);
        at.check_end(128 + signal.as_raw());
    }
}

/// While the kernel starts there is no shell yet, but the terminal is the guest's already.
fn signals_during_the_boot_leave_the_terminal_as_it_was(mode: Mode) {
    for milliseconds in [0, 50, 400] {
        let at = AtTerminal::start(&mut mode.run(&["--busybox"]));
        at.wait_for("raw terminal", || at.is_raw());
        std::thread::sleep(Duration::from_millis(milliseconds));
        at.signal(Signal::TERM);
        at.check_end(143);
    }
}

fn a_time_out_leaves_the_terminal_as_it_was(mode: Mode) {
    let at = AtTerminal::start(&mut mode.run(&["--timeout", "2"]));
    at.wait_for("raw terminal", || at.is_raw());
    at.check_end(124);
}

fn the_key_leaves_the_terminal_as_it_was(mode: Mode) {
    let mut at = shell(mode);
    at.press("\x1d\x1d\x1d");
    at.check_end(130);
}

/// How the inner process of the next test knows where it is to panic.
const PANIC_IN: &str = "BIVOUAC_PANIC_IN";

/// This test's program is started once more, at a terminal, which it makes raw before it panics.
#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    match std::env::var(PANIC_IN).as_deref() {
        Ok("main") => {
            let _raw = Raw::enter().expect("a terminal");
            wait_for_a_key();
            panic!("on purpose");
        }
        Ok("thread") => {
            let _raw = Raw::enter().expect("a terminal");
            wait_for_a_key();
            let ended = std::thread::spawn(|| panic!("on purpose")).join();
            // Without a chance for the guard: only the panic's hook can have restored it.
            std::process::exit(if ended.is_err() { 101 } else { 1 });
        }
        _ => ["main", "thread"].into_iter().for_each(check_panic),
    }
}

fn check_panic(place: &str) {
    let mut inner = Command::new(std::env::current_exe().expect("a test has a path"));
    inner.args(["--exact", "a_panic_leaves_the_terminal_as_it_was", "--nocapture"]);
    let mut at = AtTerminal::start(inner.env(PANIC_IN, place));
    at.wait_for("raw terminal", || at.is_raw());
    at.press("x");
    at.expect("on purpose");
    at.check_end(101);
}

fn wait_for_a_key() {
    let mut key = [0];
    std::io::Read::read_exact(&mut std::io::stdin(), &mut key).expect("a key");
}

in_each_mode!(
    a_shell_that_ends_leaves_the_terminal_as_it_was,
    the_shell_has_job_control_and_knows_the_windows_size,
    a_guest_that_crashes_leaves_the_terminal_as_it_was,
    signals_leave_the_terminal_as_it_was,
    signals_during_the_boot_leave_the_terminal_as_it_was,
    a_time_out_leaves_the_terminal_as_it_was,
    the_key_leaves_the_terminal_as_it_was,
);

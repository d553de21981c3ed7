//! Runs every test program in a machine and reads what it says on its serial port.
//!
//! By default the machine is `biv`. With `BIVOUAC_ORACLE=tcg` in the environment it is QEMU's TCG,
//! a second opinion on what the programs expect; where TCG is known to differ from the manuals,
//! `tcg-deviations.txt` names the check and the section of the manual.

#![forbid(unsafe_code)]

mod known;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::{env, fs};

use whole_machine::modes::{Mode, UserExecution};

/// How long one program may take before the machine is ended.
const TIMEOUT_SECONDS: u32 = 180;

/// What `timeout` of coreutils exits with when it had to end the machine.
const TIMED_OUT: i32 = 124;

/// Exit status of a machine whose guest wrote 0 to the debug-exit port: `(value << 1) | 1`.
const ALL_PASSED: i32 = 1;

/// Who executes the programs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Machine {
    Bivouac,
    Tcg,
}

impl Machine {
    fn chosen() -> Self {
        match env::var("BIVOUAC_ORACLE").as_deref() {
            Ok("tcg") => Self::Tcg,
            Ok("") | Err(_) => Self::Bivouac,
            Ok(other) => panic!("BIVOUAC_ORACLE={other}: only `tcg` is known"),
        }
    }

    fn boot(self, mode: Mode, image: &str, options: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.arg(TIMEOUT_SECONDS.to_string());
        match self {
            Self::Bivouac => command
                .arg(bivouac())
                .args(["run", "--kernel", image, "--mem", "256M", "--debug-exit"])
                .args(mode.options())
                .args(options)
                .args(["--no-reboot", "--append", DIRECT_COMMAND_LINE, "--initrd", MODULE]),
            Self::Tcg => command
                .args(["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "256M"])
                .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-serial", "stdio"])
                .args(["-display", "none", "-no-reboot", "-net", "none", "-kernel", image])
                .args(["-append", COMMAND_LINE, "-initrd", MODULE]),
        };
        command.stdin(Stdio::null()).output().expect("`timeout` and the machine can be started")
    }
}

/// What `long/boot.c` expects to be handed.
const COMMAND_LINE: &str = "colour=green size=7";
/// The same for user code that may run directly (harness/machine.c). TCG does not get it: it ends in
/// an assertion of its own over some random bytes in code that may use AVX.
const DIRECT_COMMAND_LINE: &str = "colour=green size=7 user=linux";
/// The file that it expects as its module.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/module.txt");

/// The command, built beside this test, or named by `BIVOUAC_BINARY`.
fn bivouac() -> PathBuf {
    env::var_os("BIVOUAC_BINARY").map_or_else(whole_machine::bivouac, PathBuf::from)
}

/// Checks that the machine in use is known to get wrong, as `KIND/PROGRAM/CHECK`.
fn deviations(machine: Machine, program: &str) -> Vec<String> {
    let file = match machine {
        Machine::Tcg => "tcg-deviations.txt",
        Machine::Bivouac => "deviations.txt",
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&path).expect("the list of deviations can be read");
    text.lines()
        .filter_map(|line| line.split(" # ").next()?.trim().strip_prefix(program))
        .filter_map(|line| Some(line.strip_prefix('/')?.to_owned()))
        .collect()
}

/// Whether `line` reports on `check`; a `*` at the end of `check` stands for any rest.
fn is_check(line: &str, check: &str) -> bool {
    match check.strip_suffix('*') {
        Some(start) => line.starts_with(start),
        None => line.strip_prefix(check).is_some_and(|rest| rest.starts_with(':')),
    }
}

/// Boot `image` and require that every check passes, save the known deviations.
fn check(mode: Mode, kind: &str, name: &str, image: &str) {
    check_with(mode, kind, name, image, &[]);
}

/// The same with more options for `biv run`.
fn check_with(mode: Mode, kind: &str, name: &str, image: &str, options: &[&str]) {
    let machine = Machine::chosen();
    let first = Mode { execution: UserExecution::Translate, processors: 1 };
    if machine == Machine::Tcg && mode != first {
        println!("TCG has one mode");
        return;
    }
    let output = machine.boot(mode, image, options);
    let text = String::from_utf8_lossy(&output.stdout);
    let status = output.status.code();
    let context =
        || format!("{text}{}{:?}", String::from_utf8_lossy(&output.stderr), output.status);
    assert_ne!(status, Some(TIMED_OUT), "{kind}/{name} hangs:\n{}", context());
    let program = format!("{kind}/{name}");
    let known = deviations(machine, &program);
    let is_direct = mode.execution == UserExecution::Direct;
    let failed = text.lines().filter_map(|line| line.trim_end().strip_prefix("FAIL "));
    let (of_host, failed): (Vec<&str>, Vec<&str>) =
        failed.partition(|line| known::is_of_host(is_direct, &program, line));
    let is_known = |line: &&str| known.iter().any(|check| is_check(line, check));
    let failures: Vec<&str> = failed.into_iter().filter(|line| !is_known(line)).collect();
    assert!(failures.is_empty(), "{kind}/{name}: {failures:#?}\n{}", context());
    if kind == "shutdown" {
        assert!(text.contains("ok ready"), "{name} did not start:\n{}", context());
        assert!(!text.contains("survived"), "{name} should have shut down:\n{}", context());
        check_shutdown(machine, status, &context());
        return;
    }
    assert!(text.contains("\nend: "), "{kind}/{name} did not end:\n{}", context());
    assert!(text.lines().any(|line| line.starts_with("ok ")), "no check ran:\n{}", context());
    if known.is_empty() && of_host.is_empty() {
        assert_eq!(status, Some(ALL_PASSED), "{kind}/{name}:\n{}", context());
    }
}

/// A triple fault ends QEMU quietly under `-no-reboot`; Bivouac says so and exits with a failure.
fn check_shutdown(machine: Machine, status: Option<i32>, context: &str) {
    match machine {
        Machine::Tcg => assert_eq!(status, Some(0), "{context}"),
        Machine::Bivouac => {
            assert!(status.is_some_and(|status| status > ALL_PASSED), "{context}");
            assert!(context.contains("triple fault"), "no message:\n{context}");
        }
    }
}

/// Blocks that are left to the interpreter (docs/debugging.md) are no different, least of all in when
/// interrupts come and what devices see.
#[test]
fn blocks_that_are_interpreted_do_the_same() {
    let mode = Mode { execution: UserExecution::Translate, processors: 1 };
    let programs = [
        ("interrupts", long::interrupts::IMAGE),
        ("loops", long::loops::IMAGE),
        ("smc", long::smc::IMAGE),
    ];
    for (name, image) in programs {
        check_with(mode, "long", name, image, &["--interpret-blocks", "0-ffffffffffffffff"]);
    }
}

/// Keeps all of the host's cores busy until it is dropped.
struct BusyHost {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyHost {
    fn new() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let spin = |_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..cores).map(spin).collect();
        Self { is_over, threads }
    }
}

impl Drop for BusyHost {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A timer that is due when it is set waits for no thread of the host.
#[test]
fn timers_that_are_due_interrupt_at_once_on_a_busy_host() {
    let _busy = BusyHost::new();
    let mode = Mode { execution: UserExecution::Translate, processors: 1 };
    check(mode, "long", "timers", long::timers::IMAGE);
}

macro_rules! program {
    ($kind:ident, $name:ident, $image:literal) => {
        pub mod $name {
            use whole_machine::modes::Mode;

            #[allow(dead_code)] // Few are asked for by name.
            pub const IMAGE: &str = $image;

            fn passes(mode: Mode) {
                crate::check(mode, stringify!($kind), stringify!($name), $image);
            }

            whole_machine::in_each_mode!(passes);
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

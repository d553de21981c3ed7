//! Test programs on the bare board: memory, one vCPU, a debug console and debug exit. There is no PC around it, no APIC
//! and no hypervisor, so that what passes here is the processor's own doing.

#![forbid(unsafe_code)]

mod known;

use std::io::{self, Read};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use vmm::devices::{DebugConsole, DebugExit};
use vmm::{BareBoard, Configuration, Contents, Machine, Module, Outcome};

/// How long one program may take before the machine is ended.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Memory of these machines.
const MEMORY_BYTES: u64 = 256 << 20;

/// What the harness expects of its command line, and the file that is its module (`programs.rs`).
const COMMAND_LINE: &str = "colour=green size=7 user=linux";
const MODULE: &[u8] = include_bytes!("../programs/module.txt");

/// Programs that need interrupts of an APIC or a PIC, a clock, a PC's devices, or a hypervisor.
const NEED_A_PC: [&str; 12] = [
    "long/boot_pvh",
    "long/boot_pvh32",
    "long/cpuid",
    "long/interrupts",
    "long/loops",
    "long/msrs",
    "long/noise", // the local APIC's timer ends each round: random code may loop for ever
    "long/platform",
    "long/preempt",    // interrupts of the local APIC's timer are what it tests
    "long/shelter",    // counts interrupts of the local APIC's timer after `sti`
    "long/timers",     // local APIC (x2APIC's MSRs too), PIT, PIC and CMOS clock are what it tests
    "protected/modes", // waits in real mode for the PIT and the CMOS clock
];

/// A program on the bare board: how it ended, and what it said.
fn run(image: &str, user_execution: vmm::UserExecution) -> (Outcome, String) {
    let (mut output, end) = io::pipe().expect("a pipe");
    let kernel = std::fs::read(image).expect("the program was built");
    let module = Module { data: Contents::new(MODULE), command_line: "module.txt".to_owned() };
    let configuration = Configuration {
        kernel: Contents::new(kernel),
        modules: vec![module],
        command_line: COMMAND_LINE.to_owned(),
        memory: MEMORY_BYTES,
        devices: vec![Box::new(DebugConsole::new(Box::new(end))), Box::new(DebugExit)],
        user_execution,
        ..Configuration::default()
    };
    let reader = thread::spawn(move || {
        let mut said = Vec::new();
        output.read_to_end(&mut said).map(|_| said)
    });
    let outcome = {
        let mut machine = Machine::<BareBoard>::on_board(configuration).expect("a machine");
        let stop = machine.stop_handle();
        let (ended, end) = mpsc::channel::<()>();
        let watchdog = thread::spawn(move || {
            if end.recv_timeout(TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
                stop.stop();
            }
        });
        let outcome = machine.run().expect("it runs");
        drop(ended);
        watchdog.join().expect("no panic");
        outcome
    };
    let said = reader.join().expect("no panic").expect("a pipe can be read");
    (outcome, String::from_utf8_lossy(&said).into_owned())
}

fn check(kind: &str, name: &str, image: &str) {
    let program = format!("{kind}/{name}");
    if NEED_A_PC.contains(&program.as_str()) {
        println!("{program} needs a PC");
        return;
    }
    for execution in [vmm::UserExecution::Translate, vmm::UserExecution::Direct] {
        let (outcome, said) = run(image, execution);
        let is_direct = execution == vmm::UserExecution::Direct;
        let failed = said.lines().filter_map(|line| line.strip_prefix("FAIL "));
        let (of_host, failures): (Vec<_>, Vec<_>) =
            failed.partition(|line| known::is_of_host(is_direct, &program, line));
        assert!(failures.is_empty(), "{program}, {execution:?}: {failures:#?}");
        if kind == "shutdown" {
            assert!(matches!(outcome, Outcome::TripleFault(_)), "{program}: {outcome:?}\n{said}");
            assert!(said.contains("ok ready") && !said.contains("survived"), "{program}: {said}");
            continue;
        }
        if of_host.is_empty() {
            assert_eq!(outcome, Outcome::DebugExit(1), "{program}, {execution:?}:\n{said}");
        } else {
            println!("{program}, {execution:?}: not as on other hosts: {of_host:#?}");
        }
        assert!(said.contains("\nend: "), "{program} did not end:\n{said}");
    }
}

macro_rules! program {
    ($kind:ident, $name:ident, $image:literal) => {
        #[test]
        fn $name() {
            crate::check(stringify!($kind), stringify!($name), $image);
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

#[test]
fn a_machine_on_the_bare_board_has_one_processor() {
    let configuration =
        Configuration { memory: MEMORY_BYTES, processors: 2, ..Configuration::default() };
    let error = Machine::<BareBoard>::on_board(configuration).err().expect("no machine");
    assert!(error.to_string().contains("one processor"), "{error}");
}

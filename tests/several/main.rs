//! Machines with several processors: that they come up, share memory and time, sleep when there is
//! nothing to do, and use what the hypervisor offers them.
//!
//! `guest.c` is what they run. Most of this measures time, so that one test runs at a time.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use locks::Unpoisoned;
use whole_machine::{PATIENCE_SECONDS, biv, bivouac, counted, kernels, text};

/// A file system with nothing but the program.
const ROOT: &str = env!("SEVERAL_ROOT");

/// A busy host may spoil a measurement; a fault of ours spoils all of them.
const ATTEMPTS: u32 = 5;

/// How user code may be executed.
const EXECUTIONS: [&str; 3] = ["translate", "direct", "auto"];

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unpoisoned()
}

/// Run a shell script in a fresh default machine; it must succeed, and its output is returned.
fn shell(options: &[&str], script: &str) -> String {
    let arguments = [&["run"], options, &["--", "sh", "-c", script]].concat();
    let output = biv(&arguments).output().expect("`timeout` can be started");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// What a part of the program is asked for.
fn probe<'a>(processors: &'a str, options: &[&'a str], part: &[&'a str]) -> Vec<&'a str> {
    let machine = ["run", "--root", ROOT, "--cpus", processors];
    [&machine, options, &["--", "/probe"], part].concat()
}

/// What a part of the program has found: names and numbers. It must have succeeded.
fn findings(output: &Output) -> HashMap<String, u64> {
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.ends_with("done\n"), "{said}");
    let pairs = said.lines().filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(name, number)| Some((name.to_owned(), number.parse().ok()?))).collect()
}

fn find(processors: &str, execution: &str, part: &[&str]) -> HashMap<String, u64> {
    let options = ["--user-exec", execution];
    let output =
        biv(&probe(processors, &options, part)).output().expect("`timeout` can be started");
    findings(&output)
}

#[test]
fn every_processor_comes_up() {
    let _alone = alone();
    for processors in ["1", "2", "4", "16"] {
        let start = Instant::now();
        let said = shell(&["--cpus", processors], "nproc; head -1 /proc/interrupts | wc -w");
        let both = format!("{processors}\n{processors}\n");
        assert_eq!(said, both);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(60), "{processors} processors take {took:?}");
    }
}

#[test]
fn processors_can_be_switched_off_and_on() {
    let _alone = alone();
    let script = "cd /sys/devices/system/cpu
        for round in 1 2 3; do
            for n in 1 2 3; do echo 0 > cpu$n/online; done; nproc
            for n in 1 2 3; do echo 1 > cpu$n/online; done; nproc
        done";
    assert_eq!(shell(&["--cpus", "4"], script), "1\n4\n".repeat(3));
}

#[test]
fn kernels_find_what_the_hypervisor_offers() {
    let _alone = alone();
    let newer = kernels::debian("bookworm-backports", "linux-image-cloud-amd64");
    let newer = newer.to_str().expect("the target directory has a plain name");
    for kernel in [&[][..], &["--kernel", newer]] {
        let options = [&["--cpus", "4"], kernel].concat();
        let said = shell(&options, "dmesg");
        for feature in [
            "Hypervisor detected: KVM",
            "kvm-clock: Using msrs",
            "KVM setup pv remote TLB flush",
            "setup PV sched yield",
            "setup PV IPIs",
            "PV spinlocks enabled",
        ] {
            assert!(said.contains(feature), "{feature}: {said}");
        }
        for absent in ["async PF", "WARNING:", "BUG:", "Call Trace"] {
            assert!(!said.contains(absent), "{absent}: {said}");
        }
    }
}

#[test]
fn kernels_use_what_the_hypervisor_offers() {
    let _alone = alone();
    // Processors that sleep while others change mappings, and locks that all of them want.
    let uses = [
        ("mappings", "flushes on waking"),
        ("forks", "calls to end a halt"),
        ("forks", "calls to interrupt many"),
    ];
    for (part, counter) in uses {
        let output = biv(&probe("4", &["--stats"], &[part, "2000"])).output();
        let output = output.expect("`timeout` can be started");
        findings(&output);
        let stats = text(&output.stderr);
        assert!(counted(&stats, counter) > 0, "{part}, {counter}: {stats}");
    }
}

/// The first core that we may use.
fn a_core() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let digits = list.expect("Linux says so").trim().chars().take_while(char::is_ascii_digit);
    digits.collect()
}

#[test]
fn time_that_the_host_has_not_given_is_known_to_be_stolen() {
    let _alone = alone();
    let mut command = Command::new("taskset");
    command.args(["-c", &a_core(), "timeout", PATIENCE_SECONDS]).arg(bivouac());
    command.args(probe("2", &[], &["steal", "2000"])).stdin(Stdio::null());
    let found = findings(&command.output().expect("`taskset` can be started"));
    // Two processors compute for two seconds each, and share one core: one of them never has it.
    assert!((100..=400).contains(&found["stolen"]), "{found:?} hundredths of a second");
}

#[test]
fn no_clock_goes_backwards_from_one_processor_to_another() {
    let _alone = alone();
    for execution in EXECUTIONS {
        let found = find("4", execution, &["clocks", "500"]);
        for clock in ["tsc", "monotonic", "raw", "real"] {
            let count = |what| found[&format!("{clock}-{what}")];
            assert!(count("readings") > 10_000, "{clock}: {found:?}");
            assert_eq!(count("backwards"), 0, "{clock} by {}", count("most-back"));
        }
    }
}

#[test]
fn sleeps_end_within_100_microseconds_of_their_time() {
    const MOST_NANOSECONDS: u64 = 100_000;
    let _alone = alone();
    for processors in ["1", "4"] {
        let mut seen = Vec::new();
        // On a busy host, the better part of them has to do. It is timers that are measured, and
        // not how fast a helper process gets a core.
        while seen.last().is_none_or(|&quarter| quarter > MOST_NANOSECONDS) {
            assert!(seen.len() < ATTEMPTS as usize, "{processors} processors: {seen:?} ns");
            seen.push(find(processors, "translate", &["lateness"])["quarter"]);
        }
    }
}

#[test]
fn a_mapping_that_has_changed_is_seen_by_no_processor() {
    let _alone = alone();
    for processors in ["2", "4"] {
        for execution in EXECUTIONS {
            let found = find(processors, execution, &["mappings", "1000"]);
            // However little of the host's time the processors get.
            assert!(found["replaced"] > 1 && found["looks"] > 10, "{found:?}");
            assert_eq!(found["stale"], 0);
        }
    }
}

#[test]
fn processes_and_descriptors_come_and_go_on_all_processors() {
    let _alone = alone();
    for execution in EXECUTIONS {
        find("4", execution, &["forks"]);
        assert!(find("4", execution, &["contention", "1000"])["rounds"] > 1000);
    }
}

/// An initial RAM disk whose first process is the program.
fn initrd() -> PathBuf {
    let path = std::env::temp_dir().join(format!("whole-machine-{}-initrd", std::process::id()));
    let script = "cd \"$1\" && ln -f probe init && echo init | cpio -o -H newc --quiet > \"$2\"";
    let status = Command::new("sh").args(["-c", script, "sh", ROOT]).arg(&path).status();
    assert!(status.is_ok_and(|status| status.success()), "`cpio` is installed");
    path
}

#[test]
fn a_machine_boots_again_with_all_its_processors() {
    let _alone = alone();
    let initrd = initrd();
    let kernel = kernels::debian("bookworm", "linux-image-cloud-amd64");
    let mut machine = Command::new(bivouac())
        .args(["run", "--timeout", PATIENCE_SECONDS, "--cpus", "4", "--append", "console=ttyS0"])
        .arg("--kernel")
        .arg(kernel)
        .arg("--initrd")
        .arg(&initrd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    let said = BufReader::new(machine.stdout.take().expect("piped"));
    let lines = said.lines().map_while(Result::ok);
    let boots = lines.filter(|line| line.contains("Brought up 1 node, 4 CPUs")).take(4).count();
    machine.kill().expect("it runs");
    machine.wait().expect("it is ours");
    let _ = fs::remove_file(initrd);
    assert_eq!(boots, 4);
}

/// A machine that says that it is there and then sleeps.
fn sleeper(processors: &str) -> Child {
    let mut child = Command::new(bivouac())
        .args(["run", "--timeout", PATIENCE_SECONDS, "--cpus", processors])
        .args(["--", "sh", "-c", "echo up; sleep 1000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    let mut line = String::new();
    let said = child.stdout.take().expect("piped");
    BufReader::new(said).read_line(&mut line).expect("the guest speaks");
    assert_eq!(line, "up\n");
    child
}

/// What a thread has had of a core, in nanoseconds, and how often it was given one (Linux's
/// sched-stats.rst, `/proc/<pid>/schedstat`).
#[derive(Clone, Copy, Default)]
struct Scheduled {
    time: u64,
    turns: u64,
}

impl Scheduled {
    /// Read a thread's file; a thread that has just ended has had nothing.
    fn of(thread: &Path) -> Self {
        let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
        let numbers = text.split_whitespace().map(|number| number.parse().expect("a number"));
        match numbers.collect::<Vec<u64>>()[..] {
            [time, _waiting, turns] => Self { time, turns },
            _ => Self::default(),
        }
    }

    /// The sum over all threads of a process.
    fn of_process(child: &Child) -> Self {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).expect("it runs");
        tasks.map(|task| Self::of(&task.expect("it runs").path())).fold(Self::default(), Self::plus)
    }

    fn plus(self, other: Self) -> Self {
        Self { time: self.time + other.time, turns: self.turns + other.turns }
    }

    fn since(self, before: Self) -> Self {
        Self { time: self.time - before.time, turns: self.turns - before.turns }
    }
}

/// Sleep, and say what it costs on this host, in nanoseconds, to wake up and to read as much memory
/// as a first-level cache holds. A host that runs others in between has lost it from its caches by
/// then, as it has lost what a machine needs to wake up.
fn sleep_and_measure_naps(time: Duration) -> u64 {
    const NAP: Duration = Duration::from_millis(100);
    let memory = vec![1_u8; 48 << 10];
    let thread = Path::new("/proc/thread-self");
    let (start, before) = (Instant::now(), Scheduled::of(thread));
    while start.elapsed() < time {
        std::thread::sleep(NAP);
        std::hint::black_box(memory.iter().step_by(64).map(|&byte| u64::from(byte)).sum::<u64>());
    }
    let naps = Scheduled::of(thread).since(before);
    naps.time / naps.turns.max(1)
}

#[test]
fn an_idle_machine_uses_less_than_a_hundredth_of_a_core() {
    const TIME: Duration = Duration::from_secs(10);
    /// What a nap costs at most where nothing else runs on the host, in nanoseconds.
    const QUIET: u64 = 50_000;
    let _alone = alone();
    let mut machines = [("1", 20), ("4", 60)].map(|(count, most)| (count, most, sleeper(count)));
    let found = (0..ATTEMPTS).find_map(|_| {
        // What the boot has left to do, the first time.
        std::thread::sleep(Duration::from_secs(3));
        let before = machines.each_ref().map(|(.., machine)| Scheduled::of_process(machine));
        let nap = sleep_and_measure_naps(TIME);
        let after = machines.each_ref().map(|(.., machine)| Scheduled::of_process(machine));
        let mut good = true;
        for ((count, most, _), (after, before)) in
            machines.iter().zip(after.into_iter().zip(before))
        {
            let used = after.since(before);
            let hundredth = TIME.as_nanos() as u64 / 100;
            let allowed = hundredth * nap.max(QUIET) / QUIET;
            println!(
                "{count} idle processors: {:.2}% of a core, {:.1} turns/s, a nap costs {} us",
                used.time as f64 / hundredth as f64,
                used.turns as f64 / TIME.as_secs_f64(),
                nap / 1000,
            );
            good &= used.time < allowed && used.turns < most * TIME.as_secs();
        }
        good.then_some(())
    });
    for (.., machine) in &mut machines {
        machine.kill().expect("it runs");
        machine.wait().expect("it is ours");
    }
    found.expect("idle machines sleep");
}

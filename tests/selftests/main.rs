//! The Linux kernel's own self-tests, as far as they are about the processor: x86, timers, futexes,
//! `membarrier`, restartable sequences. They run in the guest, in three modes and in paravirtual machines, and leave
//! there what they leave under QEMU's TCG or better.
//!
//! The first run downloads Debian's `linux-source-6.1` (140 MB) and builds the programs, as any user;
//! then a mode takes some two minutes. So they run only if `BIVOUAC_SELFTESTS` is set: `all`,
//! `long` for those that take a minute or two each (twelve minutes a mode), or names of programs.
//! `BIVOUAC_MODES` leaves modes out; with `BIVOUAC_ORACLE=tcg` QEMU runs them.

#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use locks::Unpoisoned;
use whole_machine::complaints::complaint;
use whole_machine::modes::{Mode, PARAVIRTUAL, UserExecution};
use whole_machine::{kernels, oracle, root, text};

/// How the programs are built, and how they are run in the guest.
const BUILD: &str = include_str!("build.sh");
const GUEST: &str = include_str!("guest.sh");

/// Programs that are not run: what they do, or how long they take.
const EXCLUDED: [(&str, &str); 9] = [
    ("alarmtimer-suspend", "suspends the machine, which has no such state"),
    ("change_skew", "takes a quarter of an hour, and sets the clock's frequency"),
    ("clocksource-switch", "takes minutes, and needs a shell"),
    ("freq-step", "fails under TCG too, and takes three minutes"),
    ("leap-a-day", "takes minutes, and sets the clock"),
    ("rseq_basic_percpu_ops_test", "takes minutes"),
    ("rtcpie", "wants interrupts within a tenth of their period, which a busy host does not give"),
    ("set-2038", "takes minutes, needs a shell, and sets the clock"),
    ("skew_consistency", "takes ten minutes, and sets the clock's frequency"),
];

/// Programs that take one to some minutes each.
const LONG: [&str; 6] =
    ["adjtick", "inconsistency-check", "leapcrash", "nsleep-lat", "raw_skew", "set-timer-lat"];

/// Statuses other than 0: of ours, and of TCG.
const EXPECTED: [(&str, &str, &str); 4] = [
    // There is no AMX here, nor on most hosts.
    ("amx_64", "1", "1"),
    ("sigreturn_32", "0", "1"),
    ("sysret_ss_attrs_64", "0", "137"),
    ("test_syscall_vdso_32", "0", "137"),
];

/// Statuses of paravirtual machines with several processors, and why.
const PARAVIRTUAL_EXPECTED: [(&str, &str, &str); 2] = [
    ("test_vsyscall_32", "1", "the vDSO says processor 0 of all: Linux sets up that of the first"),
    ("test_vsyscall_64", "1", "likewise; it brings the others up without `setup_getcpu`"),
];

/// How long each may take, in seconds; `threadtest` takes half of it.
const LIMIT_SECONDS: u64 = 60;

/// The same in paravirtual machines: system calls that are traced take several times as long on several processors.
const PARAVIRTUAL_LIMIT_SECONDS: u64 = 180;

/// The same for the long ones, of which some take 130 seconds.
const LONG_LIMIT_SECONDS: u64 = 300;

const MODES: [Mode; 3] = [
    Mode { execution: UserExecution::Translate, processors: 1 },
    Mode { execution: UserExecution::Direct, processors: 4 },
    Mode { execution: UserExecution::Auto, processors: 4 },
];

/// Of paravirtual machines.
const PARAVIRTUAL_MODES: [Mode; 2] = [
    Mode { execution: UserExecution::Translate, processors: 1 },
    Mode { execution: UserExecution::Auto, processors: 4 },
];

/// A guest's root with the programs in `/tests`, made once.
fn root_with_programs() -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unpoisoned();
    let home = kernels::cache_directory();
    let done = home.join("root-selftests");
    if done.exists() {
        return done;
    }
    let (fresh, work) = (home.join("root-selftests.new"), home.join("selftests.new"));
    let script = format!(
        "rm -rf \"$2\" \"$3\" && cp -a \"$1\" \"$2\" && sh -c '{}' build \"$3\" \"$2/tests\" && \
         rm -rf \"$3\" && mv \"$2\" \"$4\"",
        BUILD.replace('\'', "'\\''")
    );
    let made = Command::new("sh")
        .args(["-c", &script, "make"])
        .args([&root::debian(), &fresh, &work, &done])
        .output()
        .expect("`sh` can be started");
    assert!(made.status.success(), "{}{}", text(&made.stdout), text(&made.stderr));
    done
}

/// The programs that are there and not left out.
fn programs(root: &Path) -> Vec<String> {
    let files = fs::read_dir(root.join("tests")).expect("it was made").filter_map(Result::ok);
    let mut names: Vec<String> =
        files.filter_map(|file| file.file_name().into_string().ok()).collect();
    names.sort_unstable();
    assert!(names.len() > 60, "only {} programs were built", names.len());
    names.retain(|name| !EXCLUDED.iter().any(|(out, _)| out == name));
    names.retain(|name| !LONG.contains(&name.as_str()));
    names
}

fn expected(name: &str, mode: Mode, options: &[&str]) -> &'static str {
    if options == PARAVIRTUAL && mode.processors > 1 {
        let known = PARAVIRTUAL_EXPECTED.iter().find(|(one, ..)| *one == name);
        if let Some((_, status, why)) = known {
            println!("{name}: status {status} is as it should be: {why}");
            return status;
        }
    }
    let known = EXPECTED.iter().find(|(one, ..)| *one == name);
    known.map_or("0", |(_, ours, tcg)| if oracle::is_tcg() { tcg } else { ours })
}

/// Run programs in one machine of a kind, which these options make it; what is not as it should be.
fn failures(
    root: &Path,
    names: &[String],
    limit: u64,
    mode: Mode,
    options: &[&str],
) -> Vec<String> {
    let seconds = limit.to_string();
    let command = ["/bin/busybox", "sh", "-c", GUEST, "selftests", &seconds];
    let words: Vec<String> =
        command.iter().map(ToString::to_string).chain(names.iter().cloned()).collect();
    let patience = limit * names.len() as u64 + 60;
    let (output, console) = oracle::run_in(root, 2048, patience, (mode, options), &words);
    let said = text(&output.stdout);
    let mut wrong: Vec<String> = names
        .iter()
        .filter_map(|name| {
            let result =
                said.lines().find_map(|line| line.strip_prefix(&format!("RESULT {name} ")));
            let status = result.and_then(|rest| rest.split(' ').next()).unwrap_or("no result");
            println!("{mode:?} {options:?} {name}: {status}");
            let log = || {
                let prefix = format!("LOG {name} ");
                let lines = said.lines().filter_map(|line| line.strip_prefix(&prefix));
                lines.collect::<Vec<_>>().join("\n")
            };
            (status != expected(name, mode, options))
                .then(|| format!("{mode:?} {options:?} {name}: {status}\n{}", log()))
        })
        .collect();
    if let Some(complaint) = complaint(&console) {
        wrong.push(format!("{mode:?} {options:?}: the kernel says\n{complaint}"));
    }
    if !output.status.success() {
        wrong.push(format!("{mode:?} {options:?}: {}", text(&output.stderr)));
    }
    wrong
}

/// Have what is asked for done in machines of these modes and this kind.
fn check(modes: &[Mode], options: &[&str]) {
    let Ok(asked) = env::var("BIVOUAC_SELFTESTS") else {
        println!("left out: BIVOUAC_SELFTESTS is not set; it takes some minutes, and a download");
        return;
    };
    let root = root_with_programs();
    let mut names = programs(&root);
    EXCLUDED.iter().for_each(|(name, reason)| println!("{name}: left out, {reason}"));
    let is_paravirtual = options == PARAVIRTUAL;
    let mut limit = if is_paravirtual { PARAVIRTUAL_LIMIT_SECONDS } else { LIMIT_SECONDS };
    if asked == "long" {
        (names, limit) = (LONG.map(str::to_owned).to_vec(), LONG_LIMIT_SECONDS);
    } else if asked != "all" {
        names = asked.split(',').map(str::to_owned).collect();
    }
    let modes = modes.iter().filter(|mode| !mode.is_unwanted());
    let wrong: Vec<String> =
        modes.flat_map(|mode| failures(&root, &names, limit, *mode, options)).collect();
    assert!(wrong.is_empty(), "{} failures:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn the_kernels_own_tests_succeed() {
    check(&MODES, &[]);
}

#[test]
fn they_do_in_paravirtual_machines() {
    if oracle::is_tcg() {
        return println!("left out: there is no Xen under QEMU");
    }
    check(&PARAVIRTUAL_MODES, &PARAVIRTUAL);
}

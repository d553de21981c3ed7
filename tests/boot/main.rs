//! Machines boot, run a command, and end as they should, in each mode.

#![forbid(unsafe_code)]

mod xen;

use std::io::Write;
use std::process::{Command, Stdio};

use vmm::Outcome;
use whole_machine::in_process::Files;
use whole_machine::modes::{Mode, UserExecution};
use whole_machine::{bivouac, in_each_mode, kernels, text};

fn a_command_runs_and_its_output_comes_back(mode: Mode) {
    let said = mode.shell(&[], "uname -s; id -u; echo $PATH; pwd");
    assert!(said.starts_with("Linux\n0\n/"), "{said}");
}

fn the_exit_status_is_the_commands(mode: Mode) {
    for (script, status) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -11 $$", 139)]
    {
        let output = mode.in_machine(&[], &["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(status), "{script}: {}", text(&output.stderr));
    }
    assert_eq!(mode.in_machine(&[], &["/nowhere/nothing"]).status.code(), Some(127));
    assert_eq!(mode.in_machine(&[], &["/etc"]).status.code(), Some(126));
}

fn arguments_arrive_as_they_are(mode: Mode) {
    let output = mode.in_machine(&[], &["printf", "[%s]", "", "a b", "*", "$HOME", "'\"", "-x"]);
    assert_eq!(text(&output.stdout), "[][a b][*][$HOME]['\"][-x]");
}

fn streams_are_apart_and_eight_bit_clean(mode: Mode) {
    let mut child = mode
        .run_in_time(&["--", "sh", "-c", "cat; echo to-stderr >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("`timeout` can be started");
    let sent: Vec<u8> =
        (0..200_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut input = child.stdin.take().expect("piped");
    let copy = sent.clone();
    let writer = std::thread::spawn(move || input.write_all(&copy));
    let output = child.wait_with_output().expect("the child ends");
    writer.join().expect("no panic").expect("the guest takes all");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout == sent, "{} bytes came back", output.stdout.len());
    assert_eq!(text(&output.stderr), "to-stderr\n");
}

fn memory_is_as_large_as_asked_for(mode: Mode) {
    for (size, low, high) in [("128M", 70_000, 131_072), ("8G", 7_800_000, 8_388_608)] {
        let said = mode.shell(&["--mem", size], "grep MemTotal /proc/meminfo | tr -dc 0-9");
        let kib: u64 = said.parse().unwrap_or_else(|_| panic!("{said:?} is not a number"));
        assert!((low..=high).contains(&kib), "--mem {size}: {kib} KiB");
    }
}

fn the_kernel_is_randomized_unless_it_is_told_not_to_be(mode: Mode) {
    let address = "grep ' _text$' /proc/kallsyms | cut -d' ' -f1";
    let fixed = mode.shell(&["--append", "nokaslr"], address);
    assert_eq!(fixed.trim(), "ffffffff81000000");
    // Machines that start warm have the address of the one that booted: three of them are one choice.
    let random: Vec<String> = (0..3).map(|_| mode.shell(&["--cold"], address)).collect();
    assert!(random.iter().any(|place| *place != fixed), "{random:?}");
}

fn time_passes_at_the_right_speed(mode: Mode) {
    let said = mode.shell(&[], "cut -d' ' -f1 /proc/uptime; sleep 2; cut -d' ' -f1 /proc/uptime");
    let times: Vec<f64> = said.lines().filter_map(|line| line.parse().ok()).collect();
    let passed = times[1] - times[0];
    // The upper bound leaves room for a busy host.
    assert!((1.99..6.0).contains(&passed), "{times:?}");
}

fn a_guest_that_powers_off_reboots_or_panics_is_told_apart(mode: Mode) {
    let cases = [
        ("poweroff -f", vec!["--no-reboot"], "reboot: Power down"),
        ("reboot -f", vec!["--no-reboot"], "reboot: Restarting system"),
        (
            "echo c > /proc/sysrq-trigger",
            vec!["--no-reboot", "--append", "panic=-1"],
            "Kernel panic - not syncing: sysrq triggered crash",
        ),
    ];
    for (script, options, last_words) in cases {
        let options = [&["--busybox"], &options[..]].concat();
        let output = mode.in_machine(&options, &["sh", "-c", script]);
        let code = output.status.code();
        assert!(code.is_some_and(|code| code != 0 && code != 124), "{script}: {code:?}");
        let said = text(&output.stderr);
        let (ours, guests) = said.split_once('\n').expect("there is a line of ours");
        assert!(ours.starts_with("biv: the guest "), "{script}: {said}");
        assert!(guests.lines().all(|line| line.starts_with("  ")), "{script}: {said}");
        assert!(guests.contains(last_words), "{script}: {said}");
    }
}

fn a_machine_that_takes_too_long_is_ended(mode: Mode) {
    let output = mode.in_machine(&["--timeout", "3"], &["sleep", "100"]);
    assert_eq!(output.status.code(), Some(124), "{}", text(&output.stderr));
}

fn check_kernel(mode: Mode, suite: &str, package: &str, release: &str) {
    let kernel = kernels::debian(suite, package);
    let kernel = kernel.to_str().expect("the target directory has a plain name");
    for append in ["", "nokaslr"] {
        let said = mode.shell(&["--kernel", kernel, "--append", append], "uname -r; echo $((6*7))");
        assert!(said.contains(release) && said.ends_with("42\n"), "{package} {append}: {said}");
    }
}

fn the_generic_kernel_boots(mode: Mode) {
    check_kernel(mode, "bookworm", "linux-image-amd64", "6.1.");
}

fn the_newer_cloud_kernel_boots(mode: Mode) {
    check_kernel(mode, "bookworm-backports", "linux-image-cloud-amd64", "6.12.");
}

fn the_newer_generic_kernel_boots(mode: Mode) {
    check_kernel(mode, "bookworm-backports", "linux-image-amd64", "6.12.");
}

/// In the sizes that Linux 6.12 has; by default, and unless the guest's command line says otherwise.
#[test]
fn programs_get_memory_in_large_pieces() {
    let kernel = kernels::debian("bookworm-backports", "linux-image-cloud-amd64");
    let kernel = kernel.to_str().expect("the target directory has a plain name");
    let mode = Mode { execution: UserExecution::Auto, processors: 1 };
    let script = "cat /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
    for (append, expected) in [("", "[always] "), ("biv.pages=base", "always ")] {
        let said = mode.shell(&["--kernel", kernel, "--append", append], script);
        assert!(said.starts_with(expected), "{append}: {said}");
    }
}

fn an_init_without_orders_says_so_and_ends_the_machine(mode: Mode) {
    let files = Files::default_guest().in_mode(mode);
    // What the kernel says would come in the middle of it.
    let booted = files.boot(&format!("loglevel=1 rdinit={}", provision::initramfs::INIT));
    assert_eq!(booted.outcome, Outcome::PoweredOff, "{}", booted.console);
    let said = "init: the kernel's command line names no channel";
    assert!(booted.console.contains(said), "{}", booted.console);
}

/// Libraries start at a third of the address space then, where the kernel's memory is to be.
#[test]
fn a_stack_without_limit_does_not_keep_the_kernel_from_its_memory() {
    let script = "ulimit -s unlimited && exec \"$@\"";
    let output = Command::new("timeout")
        .args(["60", "sh", "-c", script, "sh"])
        .arg(bivouac())
        .args(["run", "-v", "--", "echo", "up"])
        .stdin(Stdio::null())
        .output()
        .expect("`timeout` can be started");
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "up\n", "{said}");
    assert!(!said.contains("kernel memory is looked up"), "{said}");
}

in_each_mode!(
    a_command_runs_and_its_output_comes_back,
    the_exit_status_is_the_commands,
    arguments_arrive_as_they_are,
    streams_are_apart_and_eight_bit_clean,
    memory_is_as_large_as_asked_for,
    the_kernel_is_randomized_unless_it_is_told_not_to_be,
    time_passes_at_the_right_speed,
    a_guest_that_powers_off_reboots_or_panics_is_told_apart,
    a_machine_that_takes_too_long_is_ended,
    the_generic_kernel_boots,
    the_newer_cloud_kernel_boots,
    the_newer_generic_kernel_boots,
    an_init_without_orders_says_so_and_ends_the_machine,
);

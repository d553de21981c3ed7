//! Machines boot, run a command, and end as they should.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::Stdio;

use whole_machine::{biv, in_machine, kernels, shell, text};

#[test]
fn a_command_runs_and_its_output_comes_back() {
    let said = shell(&[], "uname -s; id -u; echo $PATH; pwd");
    assert!(said.starts_with("Linux\n0\n/"), "{said}");
}

#[test]
fn the_exit_status_is_the_commands() {
    for (script, status) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -11 $$", 139)]
    {
        let output = in_machine(&[], &["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(status), "{script}: {}", text(&output.stderr));
    }
    assert_eq!(in_machine(&[], &["/nowhere/nothing"]).status.code(), Some(127));
    assert_eq!(in_machine(&[], &["/etc"]).status.code(), Some(126));
}

#[test]
fn arguments_arrive_as_they_are() {
    let output = in_machine(&[], &["printf", "[%s]", "", "a b", "*", "$HOME", "'\"", "-x"]);
    assert_eq!(text(&output.stdout), "[][a b][*][$HOME]['\"][-x]");
}

#[test]
fn streams_are_apart_and_eight_bit_clean() {
    let mut child = biv(&["run", "--", "sh", "-c", "cat; echo to-stderr >&2"])
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

#[test]
fn memory_is_as_large_as_asked_for() {
    for (size, low, high) in [("128M", 70_000, 131_072), ("8G", 7_800_000, 8_388_608)] {
        let said = shell(&["--mem", size], "grep MemTotal /proc/meminfo | tr -dc 0-9");
        let kib: u64 = said.parse().unwrap_or_else(|_| panic!("{said:?} is not a number"));
        assert!((low..=high).contains(&kib), "--mem {size}: {kib} KiB");
    }
}

#[test]
fn the_kernel_is_randomized_unless_it_is_told_not_to_be() {
    let address = "grep ' _text$' /proc/kallsyms | cut -d' ' -f1";
    let fixed = shell(&["--append", "nokaslr"], address);
    assert_eq!(fixed.trim(), "ffffffff81000000");
    let random: Vec<String> = (0..3).map(|_| shell(&[], address)).collect();
    assert!(random.iter().any(|place| *place != fixed), "{random:?}");
}

#[test]
fn time_passes_at_the_right_speed() {
    let said = shell(&[], "cut -d' ' -f1 /proc/uptime; sleep 2; cut -d' ' -f1 /proc/uptime");
    let times: Vec<f64> = said.lines().filter_map(|line| line.parse().ok()).collect();
    let passed = times[1] - times[0];
    // The upper bound leaves room for a busy host.
    assert!((1.99..6.0).contains(&passed), "{times:?}");
}

#[test]
fn a_guest_that_powers_off_reboots_or_panics_is_told_apart() {
    let cases = [
        ("poweroff -f", vec!["--no-reboot"]),
        ("reboot -f", vec!["--no-reboot"]),
        ("echo c > /proc/sysrq-trigger", vec!["--no-reboot", "--append", "panic=-1"]),
    ];
    for (script, options) in cases {
        let output = in_machine(&options, &["sh", "-c", script]);
        let code = output.status.code();
        assert!(code.is_some_and(|code| code != 0 && code != 124), "{script}: {code:?}");
        assert_eq!(text(&output.stderr).trim().lines().count(), 1, "{script}");
    }
}

#[test]
fn a_machine_that_takes_too_long_is_ended() {
    let output = in_machine(&["--timeout", "3"], &["sleep", "100"]);
    assert_eq!(output.status.code(), Some(124), "{}", text(&output.stderr));
}

fn check_kernel(suite: &str, package: &str, release: &str) {
    let kernel = kernels::debian(suite, package);
    let kernel = kernel.to_str().expect("the target directory has a plain name");
    for append in ["", "nokaslr"] {
        let said = shell(&["--kernel", kernel, "--append", append], "uname -r; echo $((6*7))");
        assert!(said.contains(release) && said.ends_with("42\n"), "{package} {append}: {said}");
    }
}

#[test]
fn the_generic_kernel_boots() {
    check_kernel("bookworm", "linux-image-amd64", "6.1.");
}

#[test]
fn the_newer_cloud_kernel_boots() {
    check_kernel("bookworm-backports", "linux-image-cloud-amd64", "6.12.");
}

#[test]
fn the_newer_generic_kernel_boots() {
    check_kernel("bookworm-backports", "linux-image-amd64", "6.12.");
}

/// Machines one after the other: `BIVOUAC_BOOTS` of them, five by default.
#[test]
fn boots_in_a_row_leave_nothing_behind() {
    let boots = std::env::var("BIVOUAC_BOOTS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let leftovers = || {
        std::fs::read_dir(std::env::temp_dir()).map_or(0, |entries| {
            entries
                .filter_map(Result::ok)
                .filter(|entry| entry.file_name().to_string_lossy().contains("biv"))
                .count()
        })
    };
    let before = leftovers();
    for boot in 0..boots {
        assert_eq!(shell(&[], "echo up"), "up\n", "boot {boot}");
    }
    assert!(leftovers() <= before, "temporary files were left behind");
}

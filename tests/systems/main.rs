//! Machines with a process 1 of their own (`biv run --init`): whole systems, in which commands run beside systemd or
//! another init, and which switch themselves off when they are asked to.

#![forbid(unsafe_code)]

mod disks;
mod firmware;
mod place;
mod served_disks;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use place::Place;
use whole_machine::user::end_of;
use whole_machine::waiting::wait_for;
use whole_machine::{root, text};

/// An init that does nothing but live, and hears of no end.
const TINY: &str = "#!/bin/sh\necho \"I am $$ with $*\"\nwhile :; do sleep 1; done\n";

#[test]
fn systemd_on_a_disk_is_a_whole_system() {
    let place = Place::new();
    let disk = format!("{},snapshot", place.system_disk());
    place.detach("web", &["--root-disk", &disk, "--init", "/sbin/init"]);
    place.wait_until_up("web");
    assert_eq!(place.says(&["exec", "web", "cat", "/proc/1/comm"]), "systemd\n");
    // A service is systemd's, and lives on without the command that has started it.
    let service = ["systemd-run", "--unit=kept", "--collect", "sleep", "1000"];
    place.says(&[&["exec", "web"], &service[..]].concat());
    assert_eq!(place.says(&["exec", "web", "systemctl", "is-active", "kept"]), "active\n");
    assert_eq!(place.output(&["exec", "web", "sh", "-c", "kill -9 $$"]).status.code(), Some(137));

    let file = place.path.join("file");
    fs::write(&file, "hello\n").expect("there is room");
    let file = file.to_str().expect("text");
    place.says(&["cp", file, "web:/root/copied"]);
    assert_eq!(place.says(&["exec", "web", "cat", "/root/copied"]), "hello\n");
    place.says(&["cp", "web:/etc/hostname", file]);
    assert_eq!(fs::read_to_string(file).expect("copied"), "whole\n");

    assert!(place.complains(&["attach", "web"]).contains("no command to attach to"));
    assert!(place.complains(&["kill", "-s", "TERM", "web"]).contains("process 1 is its own"));
    wait_for("somebody may log in", || place.console("web").contains("whole login:"));
    place.stops("web");
    let console = place.console("web");
    assert!(console.contains("Reached target") && console.contains("Power"), "{console}");
}

#[test]
fn systemd_in_a_directory_runs_in_the_foreground() {
    let place = Place::new();
    let root = root::system();
    let root = root.to_str().expect("text");
    let words = ["run", "--mem", "512M", "--root", root, "--init", "/sbin/init", "--"];
    let output = place.output(&[&words[..], &["--unit=poweroff.target"]].concat());
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("systemd-shutdown") && said.contains("Power down"), "{said}");
    assert!(
        !fs::exists(format!("{root}/var/log/wtmp")).expect("it can be seen"),
        "it is as it was"
    );
}

#[test]
fn a_whole_system_goes_on_from_a_snapshot() {
    let place = Place::new();
    let disk = place.system_disk();
    place.detach("one", &["--root-disk", &disk, "--init", "/sbin/init"]);
    place.wait_until_up("one");
    place.says(&["exec", "one", "touch", "/run/marked"]);
    let file = place.path.join("snapshot");
    let file = file.to_str().expect("text");
    place.says(&["snapshot", "one", file]);
    let before = place.says(&["exec", "one", "cat", "/proc/sys/kernel/random/boot_id"]);
    place.says(&["kill", "one"]);
    wait_for("it has ended", || place.state("one").is_some_and(|state| state != "running"));
    place.says(&["restore", "-d", "--name", "two", file]);
    assert_eq!(place.says(&["exec", "two", "cat", "/proc/sys/kernel/random/boot_id"]), before);
    assert_eq!(place.says(&["exec", "two", "cat", "/run/marked"]), "");
    assert_eq!(place.says(&["exec", "two", "systemctl", "is-system-running"]), "running\n");
    place.stops("two");
}

#[test]
fn a_whole_system_reboots() {
    let place = Place::new();
    let disk = format!("{},snapshot", place.system_disk());
    place.detach("web", &["--root-disk", &disk, "--init", "/sbin/init"]);
    place.wait_until_up("web");
    let boot = || {
        let output = place.output(&["exec", "web", "cat", "/proc/sys/kernel/random/boot_id"]);
        output.status.success().then_some(output.stdout)
    };
    let first = boot().expect("it is up");
    // Its end may come before the answer.
    place.output(&["exec", "web", "systemctl", "reboot"]);
    wait_for("it is another", || boot().is_some_and(|now| now != first));
    place.wait_until_up("web");
    place.stops("web");
}

#[test]
fn other_inits_are_switched_off_in_their_own_way() {
    let place = Place::new();
    let root = place.path.join("root");
    for directory in ["bin", "sbin", "etc", "proc", "sys", "dev", "run", "tmp", "lib"] {
        fs::create_dir_all(root.join(directory)).expect("there is room");
    }
    let busybox = root::system().join("bin/busybox");
    fs::copy(busybox, root.join("bin/busybox")).expect("it is there");
    for applet in ["sh", "sleep", "cat", "echo", "touch"] {
        symlink("busybox", root.join("bin").join(applet)).expect("there is room");
    }
    symlink("../bin/busybox", root.join("sbin/init")).expect("there is room");
    fs::write(root.join("etc/inittab"), "::sysinit:/bin/echo begun\n::shutdown:/bin/echo over\n")
        .expect("there is room");
    let tiny = root.join("sbin/tiny");
    fs::write(&tiny, TINY).expect("there is room");
    fs::set_permissions(&tiny, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let root = root.to_str().expect("text");

    place.detach("busybox", &["--root", root, "--init", "/sbin/init"]);
    wait_for("it has begun", || place.console("busybox").contains("begun"));
    assert_eq!(place.says(&["exec", "busybox", "cat", "/proc/1/comm"]), "init\n");
    place.stops("busybox");
    assert!(place.console("busybox").contains("over"), "its own shutdown has run");

    // It hears of nothing, and there is no program to ask.
    place.detach("tiny", &["--root", root, "--init", "/sbin/tiny", "--", "a b", "c"]);
    wait_for("it is process 1", || place.console("tiny").contains("I am 1 with a b c"));
    assert_eq!(place.says(&["exec", "tiny", "echo", "beside"]), "beside\n");
    place.stops("tiny");
}

#[test]
fn what_cannot_be_process_1_is_said() {
    let place = Place::new();
    let root = root::system();
    let root = root.to_str().expect("text");
    let check = |words: &[&str], status: i32, expected: &str| {
        let output = place.output(&[&["run", "--mem", "256M"], words].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    };
    check(&["--root", root, "--init", "/no/such/init"], 125, "/no/such/init as its process 1");
    check(&["--root", root, "--init", "/etc/passwd"], 125, "Permission denied");
    check(&["-d", "--root", root, "--init", "/no/such/init"], 125, "No such file");
    check(&["--root", root, "--init", "sbin/init"], 2, "absolute path");
    check(&["--init", "/sbin/init"], 2, "a root of its own");
    assert!(place.says(&["ps"]).lines().count() <= 1, "nothing is left behind");
}

#[test]
fn a_file_that_no_kernel_executes_ends_the_machine() {
    let place = Place::new();
    let root = place.path.join("root");
    fs::create_dir_all(root.join("sbin")).expect("there is room");
    // The interpreter is not there, which only executing it tells.
    let script = root.join("sbin/init");
    fs::write(&script, "#!/no/such/interpreter\n").expect("there is room");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let root = root.to_str().expect("text");
    let mut command: Command = place.command(&["run", "--root", root, "--init", "/sbin/init"]);
    let output = command.output().expect("biv can be started");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("/sbin/init as its process 1"), "{said}");
    let detached = place.command(&["run", "-d", "--root", root, "--init", "/sbin/init"]);
    let output = end_of(whole_machine::user::start(detached));
    assert_eq!(output.status.code(), Some(125), "{output:?}");
}

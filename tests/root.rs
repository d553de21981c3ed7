//! A Debian root directory for guests, made once by mmdebstrap as any user, kept in the target
//! directory.
//!
//! Packages are unpacked and not configured: no script of theirs runs, so that neither privilege nor
//! a user namespace is needed. Programs that ask for nothing but their files work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use locks::Unpoisoned;

use crate::kernels;

/// What a guest has besides what a test adds: the programs of these packages, and theirs.
const PACKAGES: [&str; 2] = ["stress-ng", "busybox-static"];

/// The same of a guest that is a whole system.
const SYSTEM_PACKAGES: [&str; 9] = [
    "systemd-sysv",
    "udev",
    "kmod",
    "busybox-static",
    "coreutils",
    "dash",
    "login",
    "util-linux",
    "base-files",
];

/// Directories that no package brings, unpacked as they are.
const DIRECTORIES: [&str; 5] = ["etc", "proc", "root", "sys", "var/tmp"];

/// The users whom programs look for.
const FILES: [(&str, &str); 2] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n",
    ),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
];

/// What a system has that has been started before: nobody is asked anything.
const SYSTEM_FILES: [(&str, &str); 5] = [
    ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("etc/hostname", "whole\n"),
    ("etc/fstab", ""),
    ("etc/shadow", "root::19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n"),
    ("etc/locale.conf", "LANG=C.UTF-8\n"),
];

/// One directory at a time is made.
static ONE: Mutex<()> = Mutex::new(());

/// The directory; it is shared, and must not be changed.
pub fn debian() -> PathBuf {
    made("root-bookworm", &PACKAGES, &[])
}

/// A directory with systemd, likewise.
pub fn system() -> PathBuf {
    made("root-system-bookworm", &SYSTEM_PACKAGES, &SYSTEM_FILES)
}

fn made(name: &str, packages: &[&str], files: &[(&str, &str)]) -> PathBuf {
    let _one = ONE.lock().unpoisoned();
    let home = kernels::cache_directory();
    let done = home.join(name);
    if !done.exists() {
        make(&home, &done, packages, files);
    }
    done
}

fn make(home: &Path, done: &Path, packages: &[&str], files: &[(&str, &str)]) {
    fs::create_dir_all(home).expect("the target directory can be written");
    let work = home.join(format!("root-{}", std::process::id()));
    let output = Command::new("mmdebstrap")
        .args(["--variant=extract", &format!("--include={}", packages.join(","))])
        .arg("bookworm")
        .arg(&work)
        .arg(kernels::site())
        .output()
        .expect("`mmdebstrap` is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mmdebstrap: {said}");
    for directory in DIRECTORIES {
        fs::create_dir_all(work.join(directory)).expect("the target directory can be written");
    }
    for (name, text) in FILES.iter().chain(files) {
        fs::write(work.join(name), text).expect("the target directory can be written");
    }
    fs::rename(&work, done).expect("the target directory can be written");
}

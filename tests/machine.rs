//! What the whole-machine tests share: the command, machines that it runs, kernels to boot.
//!
//! The default guest comes through apt, as it does for a user; a host that cannot provide it fails
//! these tests with apt's own message.

#![forbid(unsafe_code)]

pub mod census;
pub mod complaints;
pub mod endings;
pub mod in_process;
pub mod kernels;
pub mod modes;
pub mod oracle;
pub mod processes;
pub mod pseudo_terminal;
pub mod ram_disk;
pub mod root;
pub mod user;
pub mod waiting;

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, Once};

use locks::Unpoisoned;

/// How long one machine may take before it is ended.
pub const PATIENCE_SECONDS: &str = "400";

/// The command, built beside this test.
pub fn bivouac() -> PathBuf {
    static BUILD: Once = Once::new();
    BUILD.call_once(|| build(&["--package", "biv", "--bin", "biv"]));
    profile().join("biv")
}

/// A program of another package, built beside this test.
pub fn program(name: &str) -> PathBuf {
    static BUILD: Mutex<()> = Mutex::new(());
    let _alone = BUILD.lock().unpoisoned();
    // As a member of the workspace: by itself it has its dependencies with other features, built again.
    build(&["--workspace", "--bin", name]);
    profile().join(name)
}

/// An example of the command's package, built beside this test.
pub fn example(name: &str) -> PathBuf {
    static BUILT: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut built = BUILT.lock().unpoisoned();
    if !built.iter().any(|known| known == name) {
        build(&["--package", "biv", "--example", name]);
        built.push(name.to_owned());
    }
    profile().join("examples").join(name)
}

/// Where this test's profile is built.
fn profile() -> PathBuf {
    let test = env::current_exe().expect("a test has a path");
    test.ancestors().nth(2).expect("tests are in PROFILE/deps").to_owned()
}

/// Build a part of the workspace as this test was built.
fn build(what: &[&str]) {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet"]).args(what).arg("--target-dir");
    cargo.arg(profile().parent().expect("a profile is in a target directory"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // What cargo says of the test's package to the test would be a change to build scripts that look at it (ring's):
    // half of `biv` would be built again, and once more by the next cargo without that.
    let of_package = |name: &str| {
        name == "OUT_DIR" || ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|it| name.starts_with(it))
    };
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_package)) {
        cargo.env_remove(name);
    }
    assert!(cargo.status().expect("cargo can be started").success(), "cannot build {what:?}");
}

/// `biv` with these arguments, ended when it takes too long.
pub fn biv(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE_SECONDS).arg(bivouac()).args(arguments).stdin(Stdio::null());
    // The uses of a paravirtual domain's frames are counted once more at its end.
    command.env("BIVOUAC_AUDIT", "1");
    command
}

/// Bytes as text, for messages and comparisons.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The sum of a counter over all processors, from what `--stats` says: the last column.
///
/// # Panics
///
/// If there is no such counter.
pub fn counted(stats: &str, counter: &str) -> u64 {
    let row = stats.lines().find(|line| line.trim_start().starts_with(counter));
    let row = row.unwrap_or_else(|| panic!("no {counter}: {stats}"));
    let sum = row.split_whitespace().last().expect("there is a name").replace(',', "");
    sum.parse().expect("a number")
}

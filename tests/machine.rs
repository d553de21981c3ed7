//! What the whole-machine tests share: the command, machines that it runs, kernels to boot.
//!
//! The default guest comes through apt, as it does for a user; a host that cannot provide it fails
//! these tests with apt's own message.

#![forbid(unsafe_code)]

pub mod kernels;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

/// How long one machine may take before it is ended.
pub const PATIENCE_SECONDS: &str = "120";

/// The command, built beside this test.
pub fn bivouac() -> PathBuf {
    static BUILD: Once = Once::new();
    let test = env::current_exe().expect("a test has a path");
    let profile = test.parent().and_then(Path::parent).expect("tests are in PROFILE/deps");
    BUILD.call_once(|| {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", "biv", "--bin", "biv", "--target-dir"]);
        cargo.arg(profile.parent().expect("a profile is in a target directory"));
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo can be started").success(), "cannot build biv");
    });
    profile.join("biv")
}

/// `biv` with these arguments, ended when it takes too long.
pub fn biv(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE_SECONDS).arg(bivouac()).args(arguments).stdin(Stdio::null());
    command
}

/// Run a command in a fresh default machine.
pub fn in_machine(options: &[&str], command: &[&str]) -> Output {
    let arguments = [&["run"], options, &["--"], command].concat();
    biv(&arguments).output().expect("`timeout` can be started")
}

/// Bytes as text, for messages and comparisons.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Run a shell script in a fresh default machine; it must succeed, and its output is returned.
pub fn shell(options: &[&str], script: &str) -> String {
    let output = in_machine(options, &["sh", "-c", script]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{script}\n{said}{}", text(&output.stdout));
    text(&output.stdout)
}

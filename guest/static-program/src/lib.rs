//! Builds a static program of this workspace from a build script: the first process of a guest or of a pod, which a
//! crate of the host then has in itself.
//!
//! It is built by the same cargo with the lock file of this workspace, in a target directory of its
//! own under `OUT_DIR`: static linking is a matter of `RUSTFLAGS`, which hold for a whole build.
//! The explicit target keeps those flags from build scripts. glibc's static library comes with the
//! C compiler's `libc6-dev`.

#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What all programs are made from.
const SOURCES: [&str; 6] = [
    "guest/service",
    "guest/netlink",
    "guest/protocol",
    "guest/archive",
    "Cargo.toml",
    "Cargo.lock",
];

/// Builds `package`, which is made from `sources` besides, and hands the program's path to the crate that is being
/// built as the environment variable `name`.
///
/// # Panics
///
/// It is not called by a build script.
pub fn build(package: &str, sources: &[&str], name: &str) {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = here.join("../..");
    for source in sources.iter().chain(&SOURCES) {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    let target = PathBuf::from(variable("OUT_DIR")).join("guest");
    match compile(package, &workspace, &target) {
        Ok(()) => {
            let program = target.join(TARGET).join("guest").join(package);
            println!("cargo::rustc-env={name}={}", program.display());
        }
        Err(message) => {
            println!("cargo::error={message}");
        }
    }
}

fn compile(package: &str, workspace: &Path, target: &Path) -> Result<(), String> {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--package", package, "--profile", "guest", "--target", TARGET])
        .arg("--manifest-path")
        .arg(workspace.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        // Wrappers and flags of the outer build (clippy, coverage) are not for the guest.
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("RUSTFLAGS")
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static",
        );
    let output =
        cargo.output().map_err(|error| format!("cannot run cargo for {package}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        println!("cargo::warning={line}");
    }
    Err(format!("{package} does not build; it needs a C compiler and glibc's libc.a (libc6-dev)"))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}

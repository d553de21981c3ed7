//! Builds the guest's init, a static program, and hands its path to `initramfs`.
//!
//! It is built by the same cargo with the lock file of this workspace, in a target directory of its
//! own under `OUT_DIR`: static linking is a matter of `RUSTFLAGS`, which hold for a whole build.
//! The explicit target keeps those flags from build scripts. glibc's static library comes with the
//! C compiler's `libc6-dev`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const SOURCES: &[&str] =
    &["guest/init", "guest/service", "guest/protocol", "guest/archive", "Cargo.toml", "Cargo.lock"];

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = here.join("../..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    let target = PathBuf::from(variable("OUT_DIR")).join("guest");
    match build(&workspace, &target) {
        Ok(()) => {
            let init = target.join(TARGET).join("guest/init");
            println!("cargo::rustc-env=BIV_GUEST_INIT={}", init.display());
        }
        Err(message) => {
            println!("cargo::error={message}");
        }
    }
}

fn build(workspace: &Path, target: &Path) -> Result<(), String> {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--package", "init", "--profile", "guest", "--target", TARGET])
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
        cargo.output().map_err(|error| format!("cannot run cargo for the guest: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        println!("cargo::warning={line}");
    }
    Err("the guest's init does not build; it needs a C compiler and glibc's libc.a (libc6-dev)"
        .into())
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}

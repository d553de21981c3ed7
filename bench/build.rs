//! Builds the guest's runner: static, because it may be all there is in its file system.

use std::path::PathBuf;
use std::process::Command;

/// Its files.
const SOURCES: [&str; 9] = [
    "main",
    "computing",
    "vectors",
    "kernel",
    "messages",
    "processes",
    "memory",
    "switching",
    "files",
];

fn main() {
    println!("cargo::rerun-if-changed=guest");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-O2", "-static", "-pthread", "-Wall", "-Wextra", "-o"])
        .arg(out.join("runner"))
        .args(SOURCES.map(|name| format!("guest/{name}.c")))
        .arg("-lm")
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{compiler} cannot build the runner from guest/*.c"
    );
}

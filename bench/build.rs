//! Builds the guest's program: static, because it is all there is in its file system.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=guest/programs.c");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-O2", "-static", "-Wall", "-o"])
        .arg(out.join("programs"))
        .args(["guest/programs.c", "-lm"])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{compiler} cannot build guest/programs.c"
    );
}

//! Builds the program that machines with several processors run: static, because it is all there is
//! in their file system.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=several/guest.c");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root = out.join("several");
    std::fs::create_dir_all(&root).expect("cargo's directory can be written");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-O2", "-static", "-pthread", "-Wall", "-Wextra", "-o"])
        .arg(root.join("probe"))
        .arg("several/guest.c")
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{compiler} cannot build several/guest.c; it needs glibc's libc.a (libc6-dev)"
    );
    println!("cargo::rustc-env=SEVERAL_ROOT={}", root.display());
}

//! Builds the programs that guests of some tests run: static, because each is all there is in its
//! file system. Links the tests where `biv` is linked (crates/biv/build.rs), for the machines that are
//! in their own process.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rustc-link-arg-tests=-Wl,--no-pie,--image-base=0x7e9000000000");
    build("directories", "probe");
    build("disks", "probe");
    build("images", "probe");
    build("network", "datagram");
    build("paravirtual", "ports");
    build("several", "probe");
    build("soak", "soak");
    build("sockets", "socket");
}

/// Make `TEST/guest.c` the one file of a directory, named in the environment as `TEST_ROOT`.
fn build(test: &str, program: &str) {
    let source = Path::new(test).join("guest.c");
    println!("cargo::rerun-if-changed={}", source.display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root = out.join(test);
    std::fs::create_dir_all(&root).expect("cargo's directory can be written");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-O2", "-static", "-pthread", "-Wall", "-Wextra", "-o"])
        .arg(root.join(program))
        .arg(&source)
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{compiler} cannot build {}; it needs glibc's libc.a (libc6-dev)",
        source.display()
    );
    println!("cargo::rustc-env={}_ROOT={}", test.to_uppercase(), root.display());
}

//! Builds the programs that guests of some tests run: static, because each is all there is in its
//! file system. Links the tests where `biv` is linked (crates/biv/build.rs), for the machines that are
//! in their own process.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rustc-link-arg-tests=-Wl,--no-pie,--image-base=0x7e9000000000");
    build_32("code_32", "probe");
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
    let complaint = "it needs glibc's libc.a (libc6-dev)";
    compile(test, program, &["-pthread"], complaint);
}

/// The same of a 32-bit program, which uses no library: there need be none for it.
fn build_32(test: &str, program: &str) {
    let options =
        ["-m32", "-nostdlib", "-ffreestanding", "-fno-pic", "-no-pie", "-fno-stack-protector"];
    compile(test, program, &options, "it must be able to compile for i386");
}

fn compile(test: &str, program: &str, options: &[&str], complaint: &str) {
    let source = Path::new(test).join("guest.c");
    println!("cargo::rerun-if-changed={}", source.display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root = out.join(test);
    std::fs::create_dir_all(&root).expect("cargo's directory can be written");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-O2", "-static", "-Wall", "-Wextra"])
        .args(options)
        .arg("-o")
        .arg(root.join(program))
        .arg(&source)
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{compiler} cannot build {}; {complaint}",
        source.display()
    );
    println!("cargo::rustc-env={}_ROOT={}", test.to_uppercase(), root.display());
}

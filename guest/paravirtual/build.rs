//! Builds the kernel with the machine's C compiler: freestanding, at fixed addresses in the upper half.

#![forbid(unsafe_code)]

use std::env;
use std::path::PathBuf;
use std::process::Command;

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O1",
    "-g0",
    "-Wall",
    "-Wextra",
    "-ffreestanding",
    "-fno-pic",
    "-fno-pie",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fcf-protection=none",
    "-mcmodel=kernel",
    "-mno-red-zone",
    "-mgeneral-regs-only",
    "-nostdlib",
    "-static",
    "-no-pie",
    "-Wl,-T,kernel/link.ld",
    "-Wl,--build-id=none",
    "-Wl,-z,noexecstack",
    "-Wl,-z,max-page-size=4096",
    "-Wl,--no-warn-rwx-segments",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=kernel");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(FLAGS)
        .arg("-o")
        .arg(out.join("kernel"))
        .args(["kernel/start.S", "kernel/main.c"])
        .status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("{compiler} cannot build the kernel; install gcc and binutils");
        std::process::exit(1);
    }
}

//! The machine's C compiler, for build scripts of programs that have no operating system below them.

#![forbid(unsafe_code)]

use std::process::Command;
use std::{env, io};

/// What the compiler is told for every file: no C library, no vector registers, fixed addresses.
const COMPILE: &[&str] = &[
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
    "-mno-red-zone",
    "-mgeneral-regs-only",
];

/// What it is told to link: no start files, nothing dynamic, nothing that loaders do not want.
const LINK: &[&str] = &[
    "-nostdlib",
    "-static",
    "-no-pie",
    "-Wl,--build-id=none",
    "-Wl,-z,noexecstack",
    "-Wl,-z,max-page-size=4096",
    "-Wl,--no-warn-rwx-segments",
];

/// The compiler (`CC`, or `cc`), to be told which files to compile.
pub fn compiler() -> Command {
    let mut command = bare();
    command.args(COMPILE);
    command
}

/// The compiler, to be told what to link, and by which script.
pub fn linker() -> Command {
    let mut command = bare();
    command.args(LINK);
    command
}

fn bare() -> Command {
    Command::new(env::var("CC").unwrap_or_else(|_| "cc".into()))
}

/// Run a tool of the build.
///
/// # Errors
///
/// Where it cannot be started, and where it fails.
pub fn execute(mut command: Command) -> io::Result<()> {
    let status = command.status().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        io::Error::other(format!("cannot start {program}: {error}; install gcc and binutils"))
    })?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command:?} failed with {status}")))
}

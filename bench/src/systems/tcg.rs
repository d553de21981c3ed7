//! QEMU's translator, in two configurations of which the better counts: it copies memory byte by
//! byte where it announces fast string instructions (ERMS, FSRM), because Linux then uses them.

use std::path::Path;
use std::process::Command;

use super::{Family, Settings, System};
use crate::files::Files;

const PROGRAM: &str = "qemu-system-x86_64";

/// If QEMU is installed.
pub fn systems() -> Result<Vec<System>, String> {
    super::need(PROGRAM, &["--version"], "qemu-system-x86")?;
    Ok(vec![
        System::new(Family::Tcg, "tcg", &["-cpu", "max"]),
        System::new(Family::Tcg, "tcg without erms", &["-cpu", "max,erms=off,fsrm=off"]),
    ])
}

/// The same kernel and archive as for `biv`.
pub fn command(
    system: &System,
    files: &Files,
    settings: &Settings,
    start: impl Fn(&Path) -> Command,
) -> Command {
    let mut command = start(Path::new(PROGRAM));
    let (memory, processors) = (settings.shape.memory_mib(), settings.shape.processors);
    command.args(["-accel", "tcg", "-m", &memory.to_string(), "-smp", &processors.to_string()]);
    command.args(["-nographic", "-no-reboot", "-net", "none"]).args(&system.options);
    command.arg("-kernel").arg(&files.kernel);
    command.arg("-initrd").arg(files.archive());
    if let Some(disk) = files.disk(settings.shape.root) {
        let disk = disk.display();
        command.arg("-drive").arg(format!("file={disk},if=virtio,format=raw,readonly=on"));
    }
    command.args(["-append", &settings.kernel_parameters("console=ttyS0 quiet panic=-1", "vda")]);
    command
}

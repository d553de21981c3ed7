//! User-Mode Linux: Debian's build of Linux as a process, with the same archive. It has one virtual
//! CPU, whatever is asked for.

use std::path::Path;
use std::process::Command;

use super::{Family, Settings, System};
use crate::files::Files;

const PROGRAM: &str = "linux.uml";

/// If it is installed.
pub fn systems() -> Result<Vec<System>, String> {
    super::need(PROGRAM, &["--version"], "user-mode-linux")?;
    Ok(vec![System::new(Family::Uml, "uml", &[])])
}

/// Its memory is a file in /dev/shm or /tmp; its console is standard output.
pub fn command(files: &Files, settings: &Settings, start: impl Fn(&Path) -> Command) -> Command {
    let mut command = start(Path::new(PROGRAM));
    command.arg(format!("mem={}M", settings.shape.memory_mib()));
    command.arg(format!("initrd={}", files.archive().display()));
    if let Some(disk) = files.disk(settings.shape.root) {
        command.arg(format!("ubd0r={}", disk.display()));
    }
    let parameters = settings.kernel_parameters("con=null con0=null,fd:1 quiet panic=-1", "ubda");
    command.args(parameters.split(' '));
    command
}

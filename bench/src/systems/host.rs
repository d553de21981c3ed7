//! The same file systems on the host itself: in namespaces of their own, so that the same programs
//! are found, and with a network that is as empty as a guest's.

use std::path::Path;
use std::process::Command;

use super::{Family, RUNNER, Settings, System};
use crate::files::Files;

/// If bubblewrap can make namespaces here.
pub fn systems() -> Result<Vec<System>, String> {
    super::need("bwrap", &["--version"], "bubblewrap")?;
    super::need("bwrap", &["--ro-bind", "/", "/", "--unshare-net", "true"], "bubblewrap")
        .map_err(|_| "bwrap may not make namespaces here".to_owned())?;
    Ok(vec![System::new(Family::Host, "host", &[])])
}

/// `bwrap`, with this directory as its root and namespaces of its own, before anything else is said to it.
pub fn namespaces(root: &Path, start: impl Fn(&Path) -> Command) -> Command {
    let mut command = start(Path::new("bwrap"));
    command.arg("--ro-bind").arg(root).arg("/");
    command.args(["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run"]);
    command.args(["--tmpfs", "/var", "--unshare-net", "--unshare-pid", "--unshare-ipc"]);
    command.args(["--die-with-parent", "--clearenv"]);
    // Servers change their user. Without effect on an ordinary user, who has none but himself in there.
    command.args(["--cap-add", "ALL"]);
    command.args(["--setenv", "PATH", "/usr/sbin:/usr/bin:/sbin:/bin"]);
    command
}

/// The runner in namespaces.
pub fn command(files: &Files, settings: &Settings, start: impl Fn(&Path) -> Command) -> Command {
    let mut command = namespaces(&files.directory(settings.shape.root), start);
    command.arg("--ro-bind").arg(files.bench()).arg("/bench");
    for (name, value) in &settings.variables {
        command.args(["--setenv", name, value]);
    }
    command.args(["--", RUNNER]);
    command
}

//! Machines with a root directory, under `biv` or, with `BIVOUAC_ORACLE=tcg`, under QEMU's TCG with
//! the same init, so that a failure of the guest's own can be told from ours.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::modes::Mode;
use crate::{bivouac, example};

/// Whether QEMU is to run the machines.
pub fn is_tcg() -> bool {
    env::var("BIVOUAC_ORACLE").is_ok_and(|oracle| oracle == "tcg")
}

/// Run `words` in a machine whose files are those of `root`; returns what it said, and what the
/// guest's kernel said. It is ended after so many seconds. Under `biv` it has these options, and executes in
/// `mode`, or as `BIVOUAC_RUN_OPTIONS` says; a paravirtual domain is audited when it ends.
pub fn run_in(
    root: &Path,
    mebibytes: u32,
    seconds: u64,
    (mode, more): (Mode, &[&str]),
    words: &[String],
) -> (Output, String) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("whole-machine-{}-console-{number}", std::process::id());
    let console = env::temp_dir().join(name);
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL"]).arg(seconds.to_string());
    if is_tcg() {
        command.arg(example("under_qemu")).arg("--root").arg(root);
        command.args(["--mem", &mebibytes.to_string()]).args(words);
        command.env("UNDER_QEMU_CONSOLE", &console);
    } else {
        let memory = format!("{mebibytes}M");
        let options = env::var("BIVOUAC_RUN_OPTIONS").unwrap_or(mode.options().join(" "));
        command.arg(bivouac()).arg("run").arg("--root").arg(root).args(["--mem", &memory]);
        command.arg("--console").arg(&console).args(options.split_whitespace()).args(more);
        command.env("BIVOUAC_AUDIT", "1");
        command.arg("--").args(words.iter().map(OsStr::new));
    }
    let output = command.stdin(Stdio::null()).output().expect("`timeout` can be started");
    let said = fs::read(&console).unwrap_or_default();
    let _ = fs::remove_file(&console);
    (output, String::from_utf8_lossy(&said).into_owned())
}

//! gVisor's `runsc`, with systrap where the build has it and ptrace where not (Debian 12's is of
//! 2022 and has not); never its KVM platform, which needs what this project does without.
//!
//! An OCI bundle whose root is the directory, read-only, with what is written to in memory.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::{Family, RUNNER, Settings, System};
use crate::files::Files;

const PROGRAM: &str = "runsc";

/// What root in a container usually may: servers change their user.
const CAPABILITIES: &str = r#"["CAP_CHOWN","CAP_DAC_OVERRIDE","CAP_FOWNER","CAP_KILL","CAP_SETGID",
    "CAP_SETUID","CAP_NET_BIND_SERVICE"]"#;

/// If it is installed.
pub fn systems() -> Result<Vec<System>, String> {
    super::need(PROGRAM, &["--version"], "runsc")?;
    let help = super::help(PROGRAM, &["flags"]);
    let platform = if help.contains("systrap") { "systrap" } else { "ptrace" };
    Ok(vec![System::new(Family::Gvisor, &format!("gvisor {platform}"), &["--platform", platform])])
}

/// `runsc run`, with its state beside its bundle.
pub fn command(
    system: &System,
    files: &Files,
    settings: &Settings,
    start: impl Fn(&Path) -> Command,
) -> io::Result<Command> {
    let bundle = files.scratch("gvisor")?;
    fs::write(bundle.join("config.json"), configuration(files, settings))?;
    let mut command = start(Path::new(PROGRAM));
    command.arg("--root").arg(bundle.join("state"));
    command.args(["--network=none", "--ignore-cgroups"]).args(&system.options);
    command.args(["run", "--bundle"]).arg(&bundle).arg(format!("bench-{}", std::process::id()));
    Ok(command)
}

/// The OCI runtime specification's config.json. No path or setting of ours needs escaping.
fn configuration(files: &Files, settings: &Settings) -> String {
    let variables: String =
        settings.variables.iter().map(|(name, value)| format!(",\"{name}={value}\"")).collect();
    let memory: String = ["/tmp", "/run", "/var", "/dev/shm"]
        .map(|path| format!(",{{\"destination\":\"{path}\",\"type\":\"tmpfs\"}}"))
        .concat();
    let (root, bench) = (files.directory(settings.shape.root), files.bench());
    format!(
        r#"{{"ociVersion":"1.0.0",
"process":{{"user":{{"uid":0,"gid":0}},"args":["{RUNNER}"],"cwd":"/",
    "env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"{variables}],
    "capabilities":{{"bounding":{CAPABILITIES},"effective":{CAPABILITIES},
        "permitted":{CAPABILITIES}}}}},
"root":{{"path":"{}","readonly":true}},
"mounts":[{{"destination":"/proc","type":"proc"}},{{"destination":"/dev","type":"tmpfs"}},
    {{"destination":"/bench","type":"bind","source":"{}","options":["ro"]}}{memory}],
"linux":{{"namespaces":[{{"type":"pid"}},{{"type":"network"}},{{"type":"mount"}}]}}}}"#,
        root.display(),
        bench.display()
    )
}

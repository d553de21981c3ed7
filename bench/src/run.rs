//! Running the programs on one system and reading what they say.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use biv::provision::{self, Part};

/// The guest's program.
const PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/programs"));

/// How long one round on one system may take.
const PATIENCE_SECONDS: &str = "180";

/// Who runs the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// This project.
    Biv,
    /// `qemu-system-x86_64 -accel tcg -cpu max`.
    Tcg,
    /// The same without fast string instructions, which TCG copies byte by byte.
    TcgNoStrings,
    /// No machine at all.
    Host,
}

impl System {
    /// All of them, in the order in which a round goes.
    pub fn all() -> [System; 4] {
        [System::Biv, System::Tcg, System::Host, System::TcgNoStrings]
    }

    /// For tables.
    pub fn name(&self) -> &'static str {
        match self {
            System::Biv => "biv",
            System::Tcg => "tcg",
            System::TcgNoStrings => "tcg without erms",
            System::Host => "host",
        }
    }

    /// Whether it can be measured here.
    pub fn is_installed(&self) -> bool {
        let needs_qemu = matches!(self, System::Tcg | System::TcgNoStrings);
        let qemu =
            Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
        if needs_qemu && qemu.is_err() {
            eprintln!("{}: qemu-system-x86_64 is not installed", self.name());
            return false;
        }
        true
    }
}

/// What one round on one system gave: nanoseconds by name; `memory` is in bytes.
pub type Round = BTreeMap<String, f64>;

/// What all machines are given.
pub struct Guest {
    directory: PathBuf,
    kernel: PathBuf,
    biv: PathBuf,
    scale: u32,
}

impl Guest {
    /// Build `biv`, fetch the kernel, pack the programs.
    pub fn prepare(scale: u32) -> Result<Guest, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let profile = own.parent().ok_or("the bench has no directory")?.to_owned();
        let target = profile.parent().ok_or("the profile has no directory")?;
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--release", "--quiet", "-p", "biv", "--target-dir"])
            .arg(target)
            .status();
        if !status.is_ok_and(|status| status.success()) {
            return Err("cannot build biv".into());
        }
        let kernel =
            provision::Guest::provide(&[Part::Kernel]).map_err(|error| error.to_string())?;
        let directory = std::env::temp_dir().join(format!("bivouac-bench-{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let guest = Guest { directory, kernel: kernel.kernel(), biv: profile.join("biv"), scale };
        guest.pack().map_err(|error| error.to_string())?;
        Ok(guest)
    }

    fn pack(&self) -> std::io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let native = self.directory.join("programs");
        fs::write(&native, PROGRAMS)?;
        fs::set_permissions(&native, fs::Permissions::from_mode(0o755))?;
        let entry = |name: &str, mode: u32| cpio::NewcBuilder::new(name).mode(mode);
        let items = [
            (entry("dev", 0o040_755), &[][..]),
            (entry("dev/console", 0o020_600).rdev_major(5).rdev_minor(1), &[][..]),
            (entry("init", 0o100_755), PROGRAMS),
        ];
        let inputs = items.map(|(builder, bytes)| (builder, std::io::Cursor::new(bytes)));
        let archive = fs::File::create(self.directory.join("initrd"))?;
        cpio::write_cpio(inputs.into_iter(), archive).map(drop)
    }

    fn command(&self, system: System) -> Command {
        let words = format!("console=ttyS0 quiet panic=-1 scale={}", self.scale);
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", PATIENCE_SECONDS]);
        let machine = |command: &mut Command, kernel: &str, initrd: &str, append: &str| {
            command.arg(kernel).arg(&self.kernel).arg(initrd).arg(self.directory.join("initrd"));
            command.args([append, &words]);
        };
        match system {
            System::Host => {
                command.arg(self.directory.join("programs")).env("scale", self.scale.to_string());
            }
            System::Biv => {
                command.arg(&self.biv).args(["run", "--mem", "512M", "--no-reboot"]);
                machine(&mut command, "--kernel", "--initrd", "--append");
            }
            System::Tcg | System::TcgNoStrings => {
                let cpu = if system == System::Tcg { "max" } else { "max,erms=off,fsrm=off" };
                command.args(["qemu-system-x86_64", "-accel", "tcg", "-cpu", cpu, "-m", "512"]);
                command.args(["-nographic", "-no-reboot", "-net", "none"]);
                machine(&mut command, "-kernel", "-initrd", "-append");
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// One round.
    pub fn run(&self, system: System) -> Result<Round, String> {
        let start = Instant::now();
        let mut child = self.command(system).spawn().map_err(|error| error.to_string())?;
        let mut round = Round::new();
        let output = child.stdout.take().ok_or("no output")?;
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            match parse(&line) {
                Some(("init", _)) if system != System::Host => {
                    round.insert("launch".into(), start.elapsed().as_nanos() as f64);
                }
                Some(("init" | "idle", _)) if system == System::Host => {}
                // QEMU's guest memory cannot be told from its own: only biv's is a memfd.
                Some(("idle", _)) if system != System::Biv => {}
                Some(("idle", _)) => {
                    if let Some(bytes) = overhead(&child) {
                        round.insert("memory".into(), bytes);
                    }
                }
                Some((name, value)) => _ = round.insert(name.into(), value),
                None => {}
            }
        }
        let _ = child.wait();
        if round.contains_key("page-fault") { Ok(round) } else { Err("it did not finish".into()) }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// `NAME NUMBER` at the end of a line, which may begin with a terminal's control sequences.
fn parse(line: &str) -> Option<(&str, f64)> {
    const NAMES: [&str; 11] = [
        "init",
        "idle",
        "sha256",
        "nbody",
        "qsort",
        "bytecode",
        "chase",
        "null-syscall",
        "pipe-round-trip",
        "fork-exec",
        "page-fault",
    ];
    let (head, number) = line.trim().rsplit_once(' ')?;
    let name = NAMES.into_iter().find(|name| head.ends_with(name))?;
    Some((name, number.parse().ok()?))
}

/// Memory of the machine's process beside the guest's own: proportional set size without the
/// mapping of guest memory.
fn overhead(timeout: &Child) -> Option<f64> {
    let children = format!("/proc/{0}/task/{0}/children", timeout.id());
    let machine: u32 =
        fs::read_to_string(children).ok()?.split_whitespace().next()?.parse().ok()?;
    let maps =
        fs::read_to_string(Path::new("/proc").join(machine.to_string()).join("smaps")).ok()?;
    let (mut kib, mut guest) = (0.0, false);
    for line in maps.lines() {
        if line.split(' ').next().is_some_and(|range| range.contains('-')) {
            guest = line.contains("memfd:");
        } else if let Some(value) = line.strip_prefix("Pss:").filter(|_| !guest) {
            kib += value.trim().trim_end_matches(" kB").parse::<f64>().ok()?;
        }
    }
    Some(kib * 1024.0)
}

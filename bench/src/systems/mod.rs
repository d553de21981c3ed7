//! Who is measured. One file each: how it is started with the runner in it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use crate::family::Family;
use crate::files::Files;
use crate::number::{Number, Root, Shape};
use crate::numbers;
use crate::options::{Amount, Options};
use crate::variants::Variant;

mod biv;
mod gvisor;
pub mod host;
mod tcg;
mod uml;

/// One configuration of a family.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// For the tables.
    pub name: String,
    /// Whose.
    pub family: Family,
    /// What distinguishes it from others of its family.
    pub options: Vec<String>,
    /// The way to run `biv`, if that is what it is.
    pub variant: Option<&'static Variant>,
    /// The build of `biv`, if it is one.
    pub program: Option<PathBuf>,
}

/// What a run is to do.
#[derive(Debug)]
pub struct Settings {
    /// In what machine.
    pub shape: Shape,
    /// Even what need not be on one CPU.
    pin: bool,
    /// For the runner.
    variables: BTreeMap<&'static str, String>,
}

impl Settings {
    /// To measure `names`.
    pub fn new(shape: Shape, amount: Amount, names: &[&str], pin: bool) -> Settings {
        let variables = BTreeMap::from([
            ("bench_only", names.join(",")),
            ("bench_milliseconds", amount.milliseconds.to_string()),
            ("bench_repeat", amount.repeat.to_string()),
            ("bench_scale", amount.scale.to_string()),
            ("bench_processors", shape.processors.to_string()),
        ]);
        Settings { shape, pin, variables }
    }

    /// As parameters of a kernel, which hands them to init; `disk` is what its first disk is called.
    fn kernel_parameters(&self, others: &str, disk: &str) -> String {
        let root = match self.shape.root {
            Root::Programs => String::new(),
            Root::Applications => format!(" bench_root=/dev/{disk}"),
        };
        let variables = self.variables.iter().map(|(name, value)| format!(" {name}={value}"));
        let variables: String = variables.collect();
        format!("{others} bench_machine=1 rdinit={RUNNER}{root}{variables}")
    }
}

/// Where the runner is in every file system.
pub const RUNNER: &str = "/bench/runner";

impl System {
    pub(crate) fn new(family: Family, name: &str, options: &[&str]) -> System {
        let options = options.iter().map(|&option| option.into()).collect();
        System { name: name.into(), family, options, variant: None, program: None }
    }

    /// Whether everything is measured in it, and not only what the ladder is about.
    pub fn is_whole(&self) -> bool {
        self.variant.is_none_or(|variant| !variant.rung)
    }

    /// Whether a number is measured in it.
    pub fn measures(&self, number: &Number) -> bool {
        self.is_whole() || numbers::LADDER.contains(&number)
    }

    /// How to start it.
    pub fn command(&self, files: &Files, settings: &Settings) -> io::Result<Command> {
        let one_cpu = (settings.shape.processors == 1 && (settings.pin || self.family.is_pinned()))
            || self.family == Family::Uml;
        let in_group = |program: &Path| match &files.group {
            None => Command::new(program),
            Some(group) => group.start(program),
        };
        let start = |program: &Path| match files.cpu.as_ref().filter(|_| one_cpu) {
            None => in_group(program),
            Some(cpu) => {
                let mut command = in_group(Path::new("taskset"));
                command.args(["-c", cpu]).arg(program);
                command
            }
        };
        Ok(match self.family {
            Family::Biv => biv::command(self, files, settings, start),
            Family::Host => host::command(files, settings, start),
            Family::Tcg => tcg::command(self, files, settings, start),
            Family::Uml => uml::command(files, settings, start),
            Family::Gvisor => gvisor::command(self, files, settings, start)?,
        })
    }
}

/// What was asked for and is there, and why anything is not.
pub fn installed(options: &Options, files: &Files) -> (Vec<System>, Vec<String>) {
    let (mut systems, mut absent) = biv::systems(options, files);
    for family in &options.against {
        let found = match family {
            Family::Biv => Ok(Vec::new()),
            Family::Host => host::systems(),
            Family::Tcg => tcg::systems(),
            Family::Uml => uml::systems(),
            Family::Gvisor => gvisor::systems(),
        };
        match found {
            Ok(found) => systems.extend(found),
            Err(why) => absent.push(format!("{} is absent: {why}", family.name())),
        }
    }
    absent.iter().for_each(|line| eprintln!("{line}"));
    (systems, absent)
}

/// What a program prints, if it is there and content.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// All that a program says, whatever it thinks of being asked.
fn help(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    output.map_or(String::new(), |output| {
        [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat()
    })
}

/// `output` for programs that are only needed to be there.
fn need(program: &str, arguments: &[&str], package: &str) -> Result<String, String> {
    output(program, arguments).ok_or(format!("no {program} here; install {package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_hands_the_settings_to_the_runner() {
        let shape = Shape { root: Root::Programs, processors: 1 };
        let amount = Amount { rounds: 1, milliseconds: 7, repeat: 3, scale: 25 };
        let settings = Settings::new(shape, amount, &["stat", "avx"], false);
        let line = settings.kernel_parameters("quiet", "vda");
        assert!(line.starts_with("quiet bench_machine=1 rdinit=/bench/runner bench_"));
        assert!(line.contains(" bench_only=stat,avx ") && line.contains(" bench_milliseconds=7 "));
        assert!(!line.contains("bench_root"));
        let shape = Shape { root: Root::Applications, processors: 2 };
        let line = Settings::new(shape, amount, &[], false).kernel_parameters("", "vda");
        assert!(line.contains(" bench_root=/dev/vda ") && line.contains(" bench_processors=2 "));
    }
}

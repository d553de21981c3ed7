//! This project, in each variant that this build knows.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Family, Settings, System};
use crate::files::Files;
use crate::options::Options;

/// One for each variant, the first as users get it; and why any is not there.
pub fn systems(options: &Options, files: &Files) -> (Vec<System>, Vec<String>) {
    let (mut systems, mut absent) = (Vec::new(), Vec::new());
    let Some(((first, program), others)) = files.programs.split_first() else {
        return (systems, absent);
    };
    let help = super::help(&program.display().to_string(), &["run", "--help"]);
    let with = |program: &PathBuf, system| System { program: Some(program.clone()), ..system };
    for (index, &variant) in options.variants.iter().enumerate() {
        let long = |option: &&&str| option.starts_with("--");
        let name = if index == 0 { first.clone() } else { format!("biv {}", variant.name) };
        match variant.options.iter().filter(long).find(|option| !knows(&help, option)) {
            Some(option) => absent.push(format!("{name} is absent: this biv has no {option}")),
            None => {
                let system = System::new(Family::Biv, &name, variant.options);
                systems.push(with(program, System { variant: Some(variant), ..system }));
            }
        }
    }
    for (name, program) in others {
        systems.push(with(program, System::new(Family::Biv, name, &[])));
    }
    for system in &mut systems {
        // Counters come at the machine's end.
        system
            .options
            .extend(["--stats".to_owned()].into_iter().filter(|_| options.wants_counters()));
    }
    (systems, absent)
}

/// Whether a help text describes an option.
fn knows(help: &str, option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    help.split([' ', ',', '\n', '[', '=']).any(|word| word == name)
}

/// What our init has a kernel do, which has another one here
/// (guest/init/src/pages.rs; Documentation/admin-guide/mm/transhuge.rst).
const PAGES: &str = "thp_anon=16K-64K:always";

/// `biv run`, as a plain machine.
pub fn command(
    system: &System,
    files: &Files,
    settings: &Settings,
    start: impl Fn(&Path) -> Command,
) -> Command {
    let mut command = start(system.program.as_deref().unwrap_or(Path::new("biv")));
    let memory = format!("{}M", settings.shape.memory_mib());
    command.args(["run", "--cold", "--mem", &memory, "--no-reboot"]).args(&system.options);
    if settings.shape.processors > 1 {
        command.args(["--cpus", &settings.shape.processors.to_string()]);
    }
    command.arg("--kernel").arg(&files.kernel).arg("--initrd").arg(files.archive());
    if let Some(disk) = files.disk(settings.shape.root) {
        command.arg("--disk").arg(format!("{},ro", disk.display()));
    }
    let own = system.variant.map_or("", |variant| variant.parameters);
    let parameters = format!("console=ttyS0 quiet panic=-1 {PAGES} {own}");
    let is_xen = system.options.iter().any(|option| option == "--xen");
    let disk = if is_xen { "xvda" } else { "vda" };
    command.args(["--append", &settings.kernel_parameters(parameters.trim_end(), disk)]);
    command
}

#[cfg(test)]
mod tests {
    #[test]
    fn options_are_found_in_a_help_text() {
        let help = "      --user-exec <HOW>\n  -t, --tty\n          Run";
        assert!(super::knows(help, "--user-exec"));
        assert!(super::knows(help, "--tty"));
        assert!(super::knows(help, "--user-exec=direct"));
        assert!(!super::knows(help, "--user"));
    }
}

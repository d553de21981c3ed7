//! This project, in each variant that this build knows.

use std::path::Path;
use std::process::Command;

use super::{Family, Settings, System};
use crate::files::Files;
use crate::options::Options;

/// One for each variant, the first as users get it.
pub fn systems(options: &Options, files: &Files) -> Vec<System> {
    let help = super::help(&files.biv.display().to_string(), &["run", "--help"]);
    let mut systems = Vec::new();
    for (index, variant) in options.variants.iter().enumerate() {
        let long = |option: &&&str| option.starts_with("--");
        match variant.options.iter().filter(long).find(|option| !knows(&help, option)) {
            Some(option) => eprintln!("{} is left out: this biv has no {option}", variant.name),
            None if index == 0 => systems.push(System::new(Family::Biv, "biv", variant.options)),
            None => {
                let name = format!("biv {}", variant.name);
                systems.push(System::new(Family::Biv, &name, variant.options));
            }
        }
    }
    systems
}

/// Whether a help text describes an option.
fn knows(help: &str, option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    help.split([' ', ',', '\n', '[', '=']).any(|word| word == name)
}

/// `biv run`, as a plain machine.
pub fn command(
    system: &System,
    files: &Files,
    settings: &Settings,
    start: impl Fn(&Path) -> Command,
) -> Command {
    let mut command = start(&files.biv);
    let memory = format!("{}M", settings.shape.memory_mib());
    command.args(["run", "--mem", &memory, "--no-reboot"]).args(&system.options);
    if settings.shape.processors > 1 {
        command.args(["--cpus", &settings.shape.processors.to_string()]);
    }
    command
        .arg("--kernel")
        .arg(&files.kernel)
        .arg("--initrd")
        .arg(files.archive(settings.shape.root));
    command.args(["--append", &settings.kernel_parameters("console=ttyS0 quiet panic=-1")]);
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

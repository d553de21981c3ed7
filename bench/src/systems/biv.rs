//! This project, in each variant that this build knows.

use std::path::Path;
use std::process::Command;

use super::{Family, Settings, System};
use crate::files::Files;
use crate::options::Options;

/// One for each variant, the first as users get it; and why any is not there.
pub fn systems(options: &Options, files: &Files) -> (Vec<System>, Vec<String>) {
    let help = super::help(&files.biv.display().to_string(), &["run", "--help"]);
    let (mut systems, mut absent) = (Vec::new(), Vec::new());
    for (index, &variant) in options.variants.iter().enumerate() {
        let long = |option: &&&str| option.starts_with("--");
        let name = if index == 0 { "biv".to_owned() } else { format!("biv {}", variant.name) };
        match variant.options.iter().filter(long).find(|option| !knows(&help, option)) {
            Some(option) => absent.push(format!("{name} is absent: this biv has no {option}")),
            None => {
                let system = System::new(Family::Biv, &name, variant.options);
                systems.push(System { variant: Some(variant), ..system });
            }
        }
    }
    (systems, absent)
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
    let own = system.variant.map_or("", |variant| variant.parameters);
    let parameters = format!("console=ttyS0 quiet panic=-1 {own}");
    command.args(["--append", &settings.kernel_parameters(parameters.trim_end())]);
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

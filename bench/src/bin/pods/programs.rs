//! A distribution's programs, as the program `bench` has them (`bench::numbers`), in a pod and on the host.
//!
//! Both have the same directory as their root, and read it in place. On the host bubblewrap gives it to them, with a
//! mount namespace and no other: what is compared is what a pod has beyond that.

use std::path::Path;
use std::process::{Command, Stdio};

use bench::number::{Number, Program, Work};
use bench::pods::Place;
use bench::run;

/// Prepares, waits, runs, and says `rate NUMBER`, or `seconds NUMBER` where the program says no rate.
///
/// # Errors
///
/// When the number is none of a program.
pub fn script(number: &Number, wait: &str) -> Result<String, String> {
    let Work::Program(program) = &number.work else {
        return Err(format!("{} is no program", number.name));
    };
    let Program { run, processors, .. } = program;
    Ok(format!(
        "set -eu\nexport bench_scale=100 bench_processors={processors}\n\
         export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp\n\
         (\n{}\n) >/tmp/prepared\n! grep ^absent /tmp/prepared\n{wait}\n\
         begin=$(date +%s%N)\n(\n{run}\n) >/tmp/said\nend=$(date +%s%N)\n\
         grep '^rate ' /tmp/said || echo seconds $(((end - begin) / 1000000))e-3\n",
        program.preparation(),
    ))
}

/// The number of a line `rate NUMBER` or `seconds NUMBER`.
///
/// # Errors
///
/// When there is none.
pub fn said(output: &str) -> Result<f64, String> {
    let number = |line: &str| {
        let number = line.strip_prefix("rate ").or_else(|| line.strip_prefix("seconds "));
        number.and_then(|number| number.trim().parse().ok())
    };
    output.lines().find_map(number).ok_or_else(|| format!("no number in {output:?}"))
}

/// On the host. `/dev`, `/proc`, and `/tmp`, `/run`, `/var` in memory.
pub fn on_host(root: &Path, script: &str) -> Command {
    let mut command = Command::new("bwrap");
    command.arg("--ro-bind").arg(root).arg("/");
    command.args(["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run"]);
    command.args(["--tmpfs", "/var", "--die-with-parent", "--clearenv", "--cap-add", "ALL"]);
    command.args(["--", "/bin/sh", "-c", script]);
    command
}

/// In a pod that is there for it alone.
pub fn in_pod(place: &Place, root: &Path, script: &str) -> Command {
    let root = root.display().to_string();
    place.command(&["run", "--net", "none", "--root", &root, "--", "/bin/sh", "-c", script])
}

/// What several do that begin at one moment, together.
///
/// # Errors
///
/// When one fails.
pub fn together(commands: impl Iterator<Item = Command>) -> Result<f64, String> {
    let start = |mut command: Command| {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| format!("{:?}: {error}", command.get_program()))
    };
    let children: Vec<_> = commands.map(start).collect();
    let mut sum = 0.0;
    // All are waited for, also if one could not be started.
    let outputs: Vec<_> =
        children.into_iter().map(|child| child.map(|child| child.wait_with_output())).collect();
    for output in outputs {
        let output = output?.map_err(|error| error.to_string())?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        sum += said(&String::from_utf8_lossy(&output.stdout))
            .map_err(|error| format!("{error}: {complaint}"))?;
    }
    Ok(sum)
}

/// What one does.
///
/// # Errors
///
/// When it fails.
pub fn alone(mut command: Command) -> Result<f64, String> {
    said(&run(&mut command)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_or_its_absence_is_an_error() {
        assert_eq!(said("x\nrate 12.5\n").unwrap(), 12.5);
        assert_eq!(said("seconds 2041e-3\n").unwrap(), 2.041);
        assert!(said("rate\nseconds\n").unwrap_err().contains("no number"));
    }

    #[test]
    fn several_are_added_and_one_that_fails_is_told_of() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let both = [shell("echo rate 1.5"), shell("echo seconds 2")];
        assert_eq!(together(both.into_iter()).unwrap(), 3.5);
        let failed = [shell("echo rate 1"), shell("echo why >&2; exit 1")];
        assert!(together(failed.into_iter()).unwrap_err().contains("why"));
    }
}

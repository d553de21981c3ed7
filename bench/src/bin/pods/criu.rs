//! What CRIU takes for the process of which [`verbs`](crate::verbs) makes a pod, where one is installed that works.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use bench::experiment::Report;
use bench::{Spread, run};

use crate::shown;

/// A directory for its images.
const IMAGES: &str = "criu";

/// Adds a line for dump and one for restore to a table; or says below it why there is none.
///
/// # Errors
///
/// When it works at first, and not any more then.
pub fn add(report: &mut Report, directory: &Path, rounds: usize) -> Result<(), String> {
    let (mut dumps, mut restores) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        match cycle(&directory.join(IMAGES)) {
            Ok((dump, restore)) => {
                dumps.push(dump);
                restores.push(restore);
            }
            Err(why) if round == 0 => {
                report.remarks.push(format!("CRIU does not work here: {}", why.trim_end()));
                return Ok(());
            }
            Err(why) => return Err(why),
        }
    }
    for (verb, found) in [("(criu dump)", dumps), ("(criu restore -d)", restores)] {
        let spread = Spread::of(found).ok_or("nothing was measured")?;
        report.rows.push(vec![verb.into(), shown(&spread)]);
    }
    Ok(())
}

/// Writes a process down, ends it, and makes it again; the milliseconds of both.
fn cycle(images: &Path) -> Result<(f64, f64), String> {
    fs::create_dir(images).map_err(|error| error.to_string())?;
    let times = timed(images);
    fs::remove_dir_all(images).map_err(|error| error.to_string())?;
    times
}

fn timed(images: &Path) -> Result<(f64, f64), String> {
    // A session of its own, which is not a group's leader before: setsid(1) does not fork then.
    let mut sleep = Command::new("setsid");
    sleep.args(["sleep", "1000000"]);
    sleep.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut ended = Ended(sleep.spawn().map_err(|error| format!("setsid: {error}"))?);
    let process = ended.0.id().to_string();
    let dump = milliseconds(images, &["dump", "--shell-job", "-t", &process])?;
    // It has been ended by the dump, and has to be reaped before its number is free.
    ended.0.wait().map_err(|error| error.to_string())?;
    let restore = milliseconds(images, &["restore", "-d", "--shell-job", "--pidfile", "pid"]);
    let made = fs::read_to_string(images.join("pid")).unwrap_or_default();
    if !made.trim().is_empty() {
        run(Command::new("kill").args(["-KILL", made.trim()]))?;
    }
    Ok((dump, restore?))
}

fn milliseconds(images: &Path, arguments: &[&str]) -> Result<f64, String> {
    let mut criu = Command::new("criu");
    criu.args(arguments).arg("-D").arg(images);
    let begun = Instant::now();
    run(&mut criu)?;
    Ok(begun.elapsed().as_secs_f64() * 1000.0)
}

/// A process that does not stay.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

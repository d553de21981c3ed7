//! `biv kernel`: which of Debian's kernels are in the cache.

use serde::Serialize;

use crate::cli::{Format, KernelAction};
use crate::print::{self, unless_closed};
use provision::kernels::{self, Wanted};

/// A kernel, for programs.
#[derive(Serialize)]
struct Entry<'a> {
    release: &'a str,
    package: &'a str,
    bytes: u64,
    age_seconds: u64,
}

/// Does what `biv kernel` says.
///
/// # Errors
///
/// A message of one line.
pub fn kernel(action: &KernelAction) -> Result<(), String> {
    let said = |error: &dyn ToString| error.to_string();
    match action {
        KernelAction::Ls { format } => list(*format),
        KernelAction::Pull { version, suite, flavour } => {
            let wanted = Wanted {
                version: version.clone(),
                suite: suite.clone(),
                flavour: (*flavour).into(),
            };
            let kernel = kernels::pull(&wanted).map_err(|error| match error {
                provision::Error::Packages(error) => said(&error),
                provision::Error::Package(error) => said(&error),
                error => said(&error),
            })?;
            unless_closed(print::text(&format!("{}\n", kernel.release)))
        }
        KernelAction::Rm { version } => {
            for name in version {
                let removed = kernels::remove_called(name).map_err(|error| said(&error))?;
                let Some(release) = removed else {
                    return Err(format!("no kernel {name}; `biv kernel ls` lists the kernels"));
                };
                unless_closed(print::text(&format!("{release}\n")))?;
            }
            Ok(())
        }
    }
}

fn list(format: Format) -> Result<(), String> {
    let kernels = kernels::list().map_err(|error| error.to_string())?;
    if format == Format::Json {
        let entries: Vec<_> = kernels
            .iter()
            .map(|kernel| Entry {
                release: &kernel.release,
                package: &kernel.package,
                bytes: kernel.bytes,
                age_seconds: kernel.age.as_secs(),
            })
            .collect();
        return unless_closed(print::json(&entries));
    }
    let mut text = format!("{:<40} {:>8} {:>8}\n", "RELEASE", "SIZE", "AGE");
    for kernel in &kernels {
        let (size, days) = (kernel.bytes.div_ceil(1 << 20), kernel.age.as_secs() / 86_400);
        text.push_str(&format!("{:<40} {size:>4} MiB {days:>6} d\n", kernel.release));
    }
    unless_closed(print::text(&text))
}

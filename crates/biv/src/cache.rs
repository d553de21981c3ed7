//! `biv cache`: which caches there are ([`provision::caches`]).

use std::time::Duration;

use serde::Serialize;

use crate::cli::{CacheAction, Format};
use crate::print::{self, unless_closed};
use provision::caches::{self, Error, Listed};

/// A cache, for programs.
#[derive(Serialize)]
struct Entry {
    name: String,
    bytes: u64,
    /// Since a machine has begun to use it.
    age_seconds: Option<u64>,
    in_use: bool,
}

/// Does what `biv cache` says.
///
/// # Errors
///
/// A message, of a line for each cache that could not be removed.
pub fn cache(action: &CacheAction) -> Result<(), String> {
    match action {
        CacheAction::Ls { format } => list(*format),
        CacheAction::Rm { all: true, .. } => {
            let names = caches::names().map_err(|error| error.to_string())?;
            // Another may be faster.
            remove(&names, |error| matches!(error, Error::None(_)))
        }
        CacheAction::Rm { name, .. } => remove(name, |_| false),
    }
}

/// Removes those that can be, and fails in the end if one could not, unless that is `fine`.
fn remove(names: &[String], fine: impl Fn(&Error) -> bool) -> Result<(), String> {
    let failed = names.iter().filter_map(|name| caches::remove(name).err());
    let failed: Vec<_> = failed.filter(|error| !fine(error)).map(|it| it.to_string()).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("\nbiv: ")),
    }
}

fn list(format: Format) -> Result<(), String> {
    let caches = caches::list().map_err(|error| error.to_string())?;
    if format == Format::Json {
        let entry = |cache: Listed| Entry {
            name: cache.name,
            bytes: cache.bytes,
            age_seconds: cache.age.as_ref().map(Duration::as_secs),
            in_use: cache.in_use,
        };
        let entries: Vec<_> = caches.into_iter().map(entry).collect();
        return unless_closed(print::json(&entries));
    }
    let width = caches.iter().map(|cache| cache.name.len()).max().unwrap_or(0).clamp(24, 64);
    let mut text = format!("{:<width$} {:>9}  {}\n", "NAME", "SIZE", "LAST USE");
    for Listed { name, bytes, age, in_use } in &caches {
        let last_use = match age {
            _ if *in_use => "now".to_owned(),
            Some(age) => format!("{} ago", span(*age)),
            None => "unknown".to_owned(),
        };
        let mebibytes = bytes.div_ceil(1 << 20);
        text.push_str(&format!("{name:<width$} {mebibytes:>5} MiB  {last_use}\n"));
    }
    unless_closed(print::text(&text))
}

/// A time in its largest unit.
fn span(time: Duration) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "d"), (3600, "h"), (60, "min")];
    let seconds = time.as_secs();
    let unit = UNITS.into_iter().find(|(length, _)| seconds >= *length);
    let (length, name) = unit.unwrap_or((1, "s"));
    format!("{} {name}", seconds / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let check = |seconds, expected| {
            assert_eq!(span(Duration::from_secs(seconds)), expected);
        };
        check(0, "0 s");
        check(119, "1 min");
        check(7200, "2 h");
        check(86_400 * 400, "400 d");
    }
}

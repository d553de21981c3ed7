//! `biv xen admission`.

use std::fmt::Write as _;

use api::Registry;
use api::admission::{Demand, Limits};
use serde::Serialize;

use crate::cli::Format;
use crate::cli::xen::{Admission, Limit};
use crate::life::Error;
use crate::print;

/// What programs are told.
#[derive(Debug, Serialize)]
struct Shown {
    limits: Limits,
    taken: Demand,
}

/// `biv xen admission`.
pub fn admission(arguments: &Admission) -> Result<(), Error> {
    let registry = Registry::open()?;
    if let Some(limits) = changed(arguments, || registry.limits())? {
        return Ok(registry.set_limits(&limits)?);
    }
    let shown = Shown { limits: registry.limits()?, taken: registry.demand()? };
    match arguments.format {
        Format::Json => Ok(print::json(&shown)?),
        Format::Text => Ok(print::text(&table(&shown))?),
    }
}

/// What the limits become; none if they stay. Who names all of them need not be able to read the old ones.
fn changed(
    arguments: &Admission,
    read: impl FnOnce() -> std::io::Result<Limits>,
) -> std::io::Result<Option<Limits>> {
    let Admission { memory, cpus, domain_memory, domain_cpus, .. } = *arguments;
    let named = [memory, cpus, domain_memory, domain_cpus];
    let mut limits = match named.iter().filter(|limit| limit.is_some()).count() {
        0 => return Ok(None),
        count if count == named.len() => Limits::default(),
        _ => read()?,
    };
    let places = [
        &mut limits.memory,
        &mut limits.processors,
        &mut limits.domain_memory,
        &mut limits.domain_processors,
    ];
    for (place, named) in places.into_iter().zip(named) {
        if let Some(Limit(limit)) = named {
            *place = limit;
        }
    }
    Ok(Some(limits))
}

/// For people.
fn table(Shown { limits, taken }: &Shown) -> String {
    let memory = |bytes: u64| format!("{}M", bytes.div_ceil(1 << 20));
    let limit = |most: Option<String>| most.unwrap_or_else(|| "none".to_owned());
    let rows = [
        ("memory", limit(limits.memory.map(memory)), memory(taken.memory)),
        ("cpus", limit(limits.processors.map(|it| it.to_string())), taken.processors.to_string()),
        ("domain-memory", limit(limits.domain_memory.map(memory)), String::new()),
        ("domain-cpus", limit(limits.domain_processors.map(|it| it.to_string())), String::new()),
    ];
    let mut text = format!("{:<14} {:>10} {:>10}\n", "LIMIT", "MOST", "TAKEN");
    for (name, most, taken) in rows {
        let line = format!("{name:<14} {most:>10} {taken:>10}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing_said() -> Admission {
        Admission {
            memory: None,
            cpus: None,
            domain_memory: None,
            domain_cpus: None,
            format: Format::Text,
        }
    }

    #[test]
    fn what_is_not_named_stays() {
        let before = Limits { memory: Some(1 << 30), processors: Some(4), ..Limits::default() };
        assert_eq!(changed(&nothing_said(), || Ok(before)).unwrap(), None);
        let some = Admission {
            cpus: Some(Limit(None)),
            domain_cpus: Some(Limit(Some(2))),
            ..nothing_said()
        };
        let after = Limits { processors: None, domain_processors: Some(2), ..before };
        assert_eq!(changed(&some, || Ok(before)).unwrap(), Some(after));
        let unreadable = || Err(std::io::ErrorKind::InvalidData.into());
        changed(&some, unreadable).unwrap_err();
        let none = Some(Limit(None));
        let all =
            Admission { memory: none, cpus: none, domain_memory: none, domain_cpus: none, ..some };
        assert_eq!(changed(&all, unreadable).unwrap(), Some(Limits::default()));
    }

    #[test]
    fn a_limit_is_one_line() {
        let limits =
            Limits { memory: Some(4 << 30), domain_processors: Some(2), ..Limits::default() };
        let shown = Shown { limits, taken: Demand { memory: 1 << 30, processors: 3 } };
        assert_eq!(
            table(&shown),
            "LIMIT                MOST      TAKEN\n\
             memory              4096M      1024M\n\
             cpus                 none          3\n\
             domain-memory        none\n\
             domain-cpus             2\n"
        );
    }
}

//! `biv xen info`.

use spec::shown::line;

use super::facts::Facts;
use crate::cli::Format;
use crate::cli::xen::Info;
use crate::life::Error;
use crate::print;

/// `biv xen info`.
pub fn info(arguments: &Info) -> Result<(), Error> {
    let entry = super::find(&arguments.name)?;
    let gone = || api::client::Error::NotRunning(api::Kind::Domain, entry.name.clone());
    let facts = Facts::of(&entry).ok_or_else(gone)?;
    match arguments.format {
        Format::Json => Ok(print::json(&facts)?),
        Format::Text => Ok(print::text(&sheet(&facts))?),
    }
}

/// For people: a line for each fact.
fn sheet(facts: &Facts) -> String {
    let used = facts.memory_used.map(|used| format!(", {} MiB of it touched", used >> 20));
    let mut lines = vec![
        ("name", facts.name.clone()),
        ("state", facts.state.clone()),
        ("process", facts.pid.to_string()),
        ("processors", facts.processors.to_string()),
        ("memory", format!("{} MiB{}", facts.memory >> 20, used.unwrap_or_default())),
        ("computed", format!("{:.1} s", facts.computed)),
        ("weight", facts.scheduling.weight.to_string()),
        ("cap", facts.scheduling.cap.map_or_else(|| "none".to_owned(), |cap| format!("{cap}%"))),
        ("warp", format!("{} ms", facts.scheduling.warp)),
        ("kernel", facts.kernel.clone()),
    ];
    lines.extend(facts.disks.iter().map(|disk| ("disk", disk.clone())));
    lines.extend(facts.networks.iter().map(|network| ("network", network.clone())));
    lines.push(("command", facts.command.join(" ")));
    lines.iter().map(|(what, value)| format!("{what:<12} {}\n", line(value))).collect()
}

//! `biv xen list`.

use api::Registry;
use spec::shown::line;

use super::facts::Facts;
use super::is_paravirtual;
use crate::cli::Format;
use crate::cli::xen::List;
use crate::life::Error;
use crate::print;

/// `biv xen list`.
pub fn list(arguments: &List) -> Result<(), Error> {
    let registry = Registry::open()?;
    // What nobody wants goes now; if it cannot, somebody else makes or removes a domain just now.
    let _ = registry.sweep();
    let entries = registry.list()?;
    let ours = entries.iter().filter(|entry| entry.alive && is_paravirtual(entry));
    let rows: Vec<Facts> = ours.filter_map(Facts::of).collect();
    match arguments.format {
        Format::Json => Ok(print::json(&rows)?),
        Format::Text => Ok(print::text(&table(&rows))?),
    }
}

/// For people.
fn table(rows: &[Facts]) -> String {
    let wide = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:<wide$}  {:<13} {:>5} {:>8} {:>10}  COMMAND\n",
        "NAME", "STATE", "CPUS", "MEMORY", "TIME(S)"
    );
    for row in rows {
        text.push_str(&format!(
            "{:<wide$}  {:<13} {:>5} {:>7}M {:>10.1}  {}\n",
            row.name,
            row.state,
            row.processors,
            row.memory >> 20,
            row.computed,
            line(&row.command.join(" "))
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_one_line() {
        let row = Facts {
            name: "db".to_owned(),
            state: "running".to_owned(),
            pid: 7,
            processors: 4,
            memory: 512 << 20,
            memory_used: None,
            computed: 12.34,
            scheduling: spec::Scheduling::default(),
            kernel: "6.12".to_owned(),
            disks: Vec::new(),
            networks: Vec::new(),
            command: vec!["postgres".to_owned(), "-D\n/data".to_owned()],
        };
        assert_eq!(
            table(&[row]),
            "NAME  STATE          CPUS   MEMORY    TIME(S)  COMMAND\n\
             db    running           4     512M       12.3  postgres -D\\n/data\n"
        );
    }
}

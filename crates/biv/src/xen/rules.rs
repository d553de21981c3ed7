//! `biv xen rules`: the rules of a domain's port of its network's router.

use std::fmt::Write as _;

use domain::network::vif::Attached;

use crate::cli::Format;
use crate::cli::xen::{Rules, RulesAction};
use crate::life::Error;
use crate::print;

/// `biv xen rules`.
///
/// # Errors
///
/// There is no such domain or VIF, or no such rule.
pub fn rules(arguments: &Rules) -> Result<(), Error> {
    let entry = super::find(&arguments.name)?;
    let attached = Attached::of(&entry)?;
    match &arguments.action {
        None => list(&attached, Format::Text),
        Some(RulesAction::List { format }) => list(&attached, *format),
        Some(RulesAction::Add { before, words }) => Ok(attached.change_rules(|lines| {
            let place = before.map_or(Ok(lines.len()), |number| place(number, lines.len()))?;
            lines.insert(place, words.join(" "));
            Ok(())
        })?),
        Some(RulesAction::Remove { number }) => Ok(attached.change_rules(|lines| {
            lines.remove(place(*number, lines.len())?);
            Ok(())
        })?),
        Some(RulesAction::Set { file }) => {
            let failed = |error| Error::File { path: file.clone(), error };
            let text = std::fs::read_to_string(file).map_err(failed)?;
            Ok(attached.change_rules(|lines| {
                *lines = text.lines().map(str::to_owned).collect();
                Ok(())
            })?)
        }
    }
}

/// Where rule `number` of so many is.
fn place(number: usize, count: usize) -> Result<usize, String> {
    let place = number.checked_sub(1).filter(|place| *place < count);
    place.ok_or_else(|| format!("there is no rule {number}: the list has {count}"))
}

fn list(attached: &Attached<'_>, format: Format) -> Result<(), Error> {
    let rules = attached.rules()?;
    if format == Format::Json {
        return Ok(print::json(&rules)?);
    }
    let mut text = String::new();
    for (number, state) in rules.iter().enumerate() {
        let (packets, bytes) = (state.matched.packets, state.matched.bytes);
        let number = number + 1;
        let _ = writeln!(text, "{number:>3}  {packets:>10} {bytes:>14}  {}", state.rule);
    }
    Ok(print::text(&text)?)
}

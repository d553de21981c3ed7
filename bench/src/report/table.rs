//! The table of promises: what every family reached, and whether that is what was promised.

use crate::markdown::{amount, markdown};
use crate::number::Number;
use crate::promises::{self, Promise, Verdict};
use crate::results::{Outcome, Results};
use crate::spread::Spread;
use crate::systems::Family;

/// What was promised and what was reached.
pub fn promises(results: &Results) -> String {
    let families: Vec<Family> = [Family::Biv]
        .into_iter()
        .chain(Family::PEERS)
        .filter(|family| !results.members(*family).is_empty())
        .collect();
    let mut head = vec!["work".to_owned(), "unit".to_owned()];
    for family in &families {
        head.push(if *family == Family::Biv { "biv (min..max)" } else { family.name() }.to_owned());
    }
    head.extend(["of host", "promise (aim)", "reached", "not ahead of"].map(str::to_owned));
    let mut rows = vec![head];
    let promised = |number: &&Number| promises::about(number.name).is_some();
    for number in results.numbers().into_iter().filter(promised) {
        let mut row = vec![number.title.to_owned(), number.unit.name.to_owned()];
        row.extend(families.iter().map(|family| cell(results, *family, number)));
        let own = results.best(Family::Biv, number);
        row.extend(judgement(results, number, own));
        row.push(own.map_or(String::new(), |own| not_ahead_of(results, number, own)));
        rows.push(row);
    }
    markdown(&rows)
}

fn cell(results: &Results, family: Family, number: &Number) -> String {
    let Some(Spread { median, min, max }) = results.best(family, number) else {
        let members = results.members(family);
        let of_them = results
            .samples
            .iter()
            .filter(|sample| members.contains(&sample.system) && sample.number == number);
        let words = of_them.map(|sample| match sample.outcome {
            Outcome::Failed(_) => "crashed",
            _ => "absent",
        });
        return words.max().unwrap_or("-").into();
    };
    let [median, min, max] = [median, min, max].map(|value| amount(value / number.unit.divisor));
    if family == Family::Biv { format!("{median} ({min}..{max})") } else { median }
}

/// The ratio to the host, the promise, and what became of it.
fn judgement(results: &Results, number: &Number, own: Option<Spread>) -> [String; 3] {
    let Some(promise) = promises::about(number.name) else { return Default::default() };
    let against = |family| {
        let (own, other) = (own?.median, results.best(family, number)?.median);
        Some(number.unit.speed(own, other))
    };
    let host = against(Family::Host);
    let (shown, value) = match promise {
        Promise::SpeedOfHost { .. } => (host, host),
        Promise::TimeOfHost { .. } => (host.map(f64::recip), host.map(f64::recip)),
        Promise::TimeOfTcg { .. } => (None, against(Family::Tcg).map(f64::recip)),
        Promise::AtMost { .. } => (None, own.map(|own| own.median / number.unit.divisor)),
    };
    let shown = shown.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let verdict = value.map_or("-".to_owned(), |value| match promise.judge(value) {
        Verdict::Aim => "yes, and the aim".to_owned(),
        Verdict::Kept => "yes".to_owned(),
        Verdict::Missed(by) if matches!(promise, Promise::TimeOfTcg { .. }) => {
            format!("**no**, {value:.2}: by {by:.2}")
        }
        Verdict::Missed(by) => format!("**no**, by {by:.2}"),
    });
    [shown, promise.text(), verdict]
}

/// Peers, other than the host, that are as good or better.
fn not_ahead_of(results: &Results, number: &Number, own: Spread) -> String {
    let peers = Family::PEERS.into_iter().filter(|family| *family != Family::Host);
    let better = peers.filter(|family| {
        let other = results.best(*family, number);
        other.is_some_and(|other| number.unit.speed(own.median, other.median) <= 1.0)
    });
    better.map(Family::name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Sample;
    use crate::systems::System;

    #[test]
    fn a_miss_and_a_better_peer_are_shown() {
        let system = |family: Family| System::new(family, family.name(), &[]);
        let families = [Family::Biv, Family::Host, Family::Tcg, Family::Uml];
        let mut results = Results::new(families.map(system).into());
        let is_stat = |number: &&Number| number.name == "stat";
        let number = crate::numbers::ALL.into_iter().find(is_stat).unwrap();
        for (system, value) in [4000.0, 1000.0, 3000.0].into_iter().enumerate() {
            let outcome = Outcome::Value(value);
            results.samples.push(Sample::new(1, system, number, outcome));
        }
        let outcome = Outcome::Failed("it crashed".into());
        results.samples.push(Sample::new(1, 3, number, outcome));
        let table = promises(&results);
        let line = table.lines().last().unwrap();
        for part in ["4000 (4000..4000)", "| crashed |", " 4.00 |", "**no**, by 2.50", "| tcg |"] {
            let line = line.replace("          tcg |", " tcg |");
            assert!(line.contains(part), "{line} has no {part}");
        }
    }
}

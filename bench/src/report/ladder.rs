//! The ladder: what each technique is worth, by how much longer work takes without it.

use crate::spread::Spread;

use crate::number::Number;
use crate::numbers;
use crate::results::{Factor, Results};

use crate::markdown::{amount, markdown};

/// What is known of one technique: what was left out, from what, and a factor for each number.
pub struct Rung {
    /// The variant.
    pub name: &'static str,
    /// What it is compared with.
    pub base: &'static str,
    /// In the order of [`numbers`].
    pub factors: Vec<Option<Factor>>,
}

/// What the ladder is about and has been measured.
pub fn numbers(results: &Results) -> Vec<&'static Number> {
    let measured = results.numbers();
    numbers::LADDER.into_iter().filter(|number| measured.contains(number)).collect()
}

/// All rungs, if anything but modes was measured.
pub fn rungs(results: &Results) -> Option<Vec<Rung>> {
    let rung = |system: usize| {
        let (variant, base) = (results.systems[system].variant?, results.base(system)?);
        let factor = |number: &Number| results.factor(system, base, number);
        let factors = numbers(results).into_iter().map(factor).collect();
        Some(Rung { name: variant.name, base: variant.base, factors })
    };
    results.systems.iter().any(|system| !system.is_whole()).then_some(())?;
    Some((0..results.systems.len()).filter_map(rung).collect())
}

/// Two tables: what is reached with everything, and the factors.
pub fn table(results: &Results) -> Option<String> {
    let rungs = rungs(results)?;
    let numbers = numbers(results);
    let names = || numbers.iter().map(|number| number.name.to_owned());
    let mut rows = vec![vec!["with everything".to_owned()]];
    rows[0].extend(names());
    let is_base = |system: &usize| {
        rungs.iter().any(|rung| {
            results.systems[*system].variant.is_some_and(|variant| variant.name == rung.base)
        })
    };
    for system in (0..results.systems.len()).filter(is_base) {
        let reached = |number: &&Number| {
            let Some(spread) = results.spread(system, number) else { return "-".to_owned() };
            format!("{} {}", amount(spread.median / number.unit.divisor), number.unit.name)
        };
        let mut row = vec![results.systems[system].name.clone()];
        row.extend(numbers.iter().map(reached));
        rows.push(row);
    }
    let mut factors = vec![vec!["variant".to_owned(), "against".to_owned()]];
    factors[0].extend(names());
    for rung in &rungs {
        let mut row = vec![rung.name.to_owned(), rung.base.to_owned()];
        row.extend(rung.factors.iter().map(|factor| factor.map_or("-".to_owned(), shown)));
        factors.push(row);
    }
    Some(format!("{}\n{}", markdown(&rows), markdown(&factors)))
}

/// In brackets what may be chance.
fn shown(Factor { spread: Spread { median, min, max }, is_certain }: Factor) -> String {
    let text = format!("{median:.2} ({min:.2}..{max:.2})");
    if is_certain { text } else { format!("[{text}]") }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::results::{Outcome, Sample};
    use crate::systems::{Family, System};
    use crate::variants;

    /// `biv`, which takes 10, and without links, which takes as long as said.
    pub fn without_links(times: &[f64]) -> Results {
        let system =
            |variant| System { variant: Some(variant), ..System::new(Family::Biv, "biv", &[]) };
        let chosen = variants::named("no-links").unwrap();
        let mut results = Results::new(chosen.into_iter().map(system).collect());
        let number = numbers::LADDER[0];
        for (index, &time) in times.iter().enumerate() {
            for (system, value) in [10.0, time].into_iter().enumerate() {
                let outcome = Outcome::Value(value);
                results.samples.push(Sample::new(index + 1, system, number, outcome));
            }
        }
        results
    }

    #[test]
    fn a_rung_says_how_much_longer_it_takes() {
        let table = table(&without_links(&[20.0, 15.0, 25.0])).unwrap();
        let line = table.lines().last().unwrap();
        assert!(line.contains("no-links") && line.contains("| 2.00 (1.50..2.50) |"), "{table}");
    }

    #[test]
    fn modes_alone_are_no_ladder() {
        let mut results = without_links(&[20.0]);
        results.systems.pop();
        results.samples.pop();
        assert_eq!(super::table(&results), None);
    }
}

//! The modes: what `biv` reaches when user code is executed in one way only.

use crate::spread::Spread;

use crate::results::{Results, geometric_mean};
use crate::systems::Family;

use crate::markdown::{amount, markdown};

/// Every mode beside `biv` as users get it, with the factor between them; nothing where only
/// that was measured.
pub fn table(results: &Results) -> Option<String> {
    let mut members = results.members(Family::Biv);
    members.retain(|&member| results.systems[member].is_whole());
    let (&first, others) = members.split_first()?;
    if others.is_empty() {
        return None;
    }
    let mut head = vec!["work".to_owned(), "unit".to_owned(), "biv".to_owned()];
    head.extend(others.iter().map(|&other| results.systems[other].name.clone()));
    let mut rows = vec![head];
    let mut factors = vec![Vec::new(); others.len()];
    for number in results.numbers() {
        let shown = |spread: Option<Spread>| {
            spread.map_or("-".to_owned(), |spread| amount(spread.median / number.unit.divisor))
        };
        let own = results.spread(first, number);
        let mut row = vec![number.title.to_owned(), number.unit.name.to_owned(), shown(own)];
        for (&other, factors) in others.iter().zip(&mut factors) {
            let other = results.spread(other, number);
            let mut cell = shown(other);
            if let (Some(own), Some(other)) = (own, other) {
                // How many times as long it takes, or as little it does.
                let factor = number.unit.speed(own.median, other.median);
                factors.push(factor);
                cell.push_str(&format!(" (x {factor:.2})"));
            }
            row.push(cell);
        }
        rows.push(row);
    }
    let mut last = vec!["geometric mean".to_owned(), String::new(), String::new()];
    let mean = |factors: &Vec<f64>| {
        geometric_mean(factors).map_or("-".to_owned(), |mean| format!("(x {mean:.2})"))
    };
    last.extend(factors.iter().map(mean));
    rows.push(last);
    Some(markdown(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Outcome, Sample};
    use crate::systems::System;

    #[test]
    fn a_variant_that_takes_twice_as_long_is_worth_two() {
        let system = |name: &str| System::new(Family::Biv, name, &[]);
        let mut results = Results::new(vec![system("biv"), system("biv direct")]);
        let number = crate::numbers::ALL[0];
        for (system, value) in [3000.0, 6000.0].into_iter().enumerate() {
            let outcome = Outcome::Value(value);
            results.samples.push(Sample::new(1, system, number, outcome));
        }
        let table = table(&results).unwrap();
        assert!(table.contains("6.00 (x 2.00)"), "{table}");
        assert!(table.lines().last().unwrap().contains("(x 2.00)"));
        results.systems.pop();
        results.samples.pop();
        assert_eq!(super::table(&results), None);
    }
}

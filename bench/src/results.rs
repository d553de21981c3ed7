//! What was measured, and the arithmetic on it.

use crate::spread::Spread;

use crate::number::Number;
use crate::systems::{Family, System};

/// What one attempt gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Nanoseconds, bytes or a rate.
    Value(f64),
    /// The system has no such thing; why.
    Absent(String),
    /// It broke, twice; how.
    Failed(String),
}

/// One number of one system in one round.
#[derive(Debug)]
pub struct Sample {
    /// Counted from 1; of what is measured in fresh machines, the start.
    pub round: usize,
    /// Index into [`Results::systems`].
    pub system: usize,
    /// What.
    pub number: &'static Number,
    /// How much.
    pub outcome: Outcome,
    /// What else is known of it.
    pub details: Details,
}

/// What is known of a sample of a fresh machine beside its value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    /// What all processes of the system computed while it was timed, in seconds of a core.
    pub cpu_seconds: Option<f64>,
    /// Counters of the machine over its whole life, by name, of those that were asked for.
    pub counters: Vec<(String, f64)>,
}

impl Sample {
    /// A sample of which nothing else is known.
    pub fn new(round: usize, system: usize, number: &'static Number, outcome: Outcome) -> Sample {
        Sample { round, system, number, outcome, details: Details::default() }
    }
}

/// Everything.
#[derive(Debug)]
pub struct Results {
    /// Who was measured, `biv` as users get it first.
    pub systems: Vec<System>,
    /// What came out.
    pub samples: Vec<Sample>,
    /// What a reader should know.
    pub remarks: Vec<String>,
}

/// How many times as long something takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factor {
    /// The factor itself.
    pub spread: Spread,
    /// Every value of the one is on the same side of every value of the other.
    pub is_certain: bool,
}

/// For factors: their product's root.
pub fn geometric_mean(factors: &[f64]) -> Option<f64> {
    let sum: f64 = factors.iter().map(|factor| factor.ln()).sum();
    (!factors.is_empty()).then(|| (sum / factors.len() as f64).exp())
}

impl Results {
    /// Nothing yet.
    pub fn new(systems: Vec<System>) -> Results {
        Results { systems, samples: Vec::new(), remarks: Vec::new() }
    }

    /// What one system reached.
    pub fn spread(&self, system: usize, number: &Number) -> Option<Spread> {
        let of_both = |sample: &&Sample| sample.system == system && sample.number == number;
        let values =
            self.samples.iter().filter(of_both).filter_map(|sample| match sample.outcome {
                Outcome::Value(value) => Some(value),
                Outcome::Absent(_) | Outcome::Failed(_) => None,
            });
        Spread::of(values.collect())
    }

    /// How many times as long it takes on one system as on another, or how many times as little is
    /// done: each value of the one against the median of the other.
    pub fn factor(&self, system: usize, base: usize, number: &Number) -> Option<Factor> {
        let (own, base) = (self.spread(system, number)?, self.spread(base, number)?);
        let factor = |value| number.unit.speed(base.median, value);
        let spread = Spread::of([own.min, own.median, own.max].map(factor).into())?;
        let is_certain = own.min > base.max || own.max < base.min;
        Some(Factor { spread, is_certain })
    }

    /// What a way to run `biv` is compared with.
    pub fn base(&self, system: usize) -> Option<usize> {
        let base = self.systems[system].variant?.base;
        let is_base = |other: &System| other.variant.is_some_and(|variant| variant.name == base);
        self.systems.iter().position(is_base).filter(|&base| base != system)
    }

    /// What a family's best member reached: for `biv`, what users get.
    pub fn best(&self, family: Family, number: &Number) -> Option<Spread> {
        let members = self.members(family);
        let members =
            if family == Family::Biv { &members[..members.len().min(1)] } else { &members };
        let spreads = members.iter().filter_map(|&system| self.spread(system, number));
        spreads.reduce(|one, other| {
            let better = number.unit.speed(one.median, other.median) >= 1.0;
            if better { one } else { other }
        })
    }

    /// The systems of a family.
    pub fn members(&self, family: Family) -> Vec<usize> {
        let is_member = |&system: &usize| self.systems[system].family == family;
        (0..self.systems.len()).filter(is_member).collect()
    }

    /// Why there are no values, each reason once.
    pub fn absences(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for sample in &self.samples {
            if let Outcome::Absent(why) = &sample.outcome {
                let name = &self.systems[sample.system].name;
                let line = format!("{name}: {} is absent: {why}", sample.number.name);
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        lines
    }

    /// Numbers that were tried at all, in the order of the table.
    pub fn numbers(&self) -> Vec<&'static Number> {
        let tried = |number: &&Number| self.samples.iter().any(|sample| sample.number == *number);
        crate::numbers::ALL.into_iter().filter(|number| tried(number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers;

    #[test]
    fn means_of_factors_are_geometric() {
        assert_eq!(geometric_mean(&[]), None);
        assert!((geometric_mean(&[0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_factor_is_certain_if_the_values_are_apart() {
        let check = |number: &'static Number, own: [f64; 3], expected: Option<Factor>| {
            let systems = [Family::Biv, Family::Host].map(|family| System::new(family, "", &[]));
            let mut results = Results::new(systems.into());
            for (round, values) in [9.0, 20.0, 10.0].into_iter().zip(own).enumerate() {
                for (system, value) in [values.0, values.1].into_iter().enumerate() {
                    let outcome = Outcome::Value(value);
                    results.samples.push(Sample::new(round, system, number, outcome));
                }
            }
            assert_eq!(results.factor(1, 0, number), expected, "{own:?}");
            assert_eq!(results.factor(1, 0, numbers::LADDER[1]), None);
        };
        let factor = |min, median, max, is_certain| {
            Some(Factor { spread: Spread { median, min, max }, is_certain })
        };
        let time = numbers::LADDER[0];
        check(time, [30.0, 21.0, 25.0], factor(2.1, 2.5, 3.0, true));
        check(time, [30.0, 19.0, 25.0], factor(1.9, 2.5, 3.0, false));
        check(time, [5.0, 4.0, 6.0], factor(0.4, 0.5, 0.6, true));
        let rate = numbers::ALL.into_iter().find(|number| number.unit.rate).unwrap();
        check(rate, [5.0, 4.0, 8.0], factor(1.25, 2.0, 2.5, true));
    }

    #[test]
    fn every_reason_is_said_once() {
        let mut results = Results::new(vec![System::new(Family::Host, "host", &[])]);
        for round in [1, 2] {
            let outcome = Outcome::Absent("it is no machine".into());
            results.samples.push(Sample::new(round, 0, numbers::LADDER[8], outcome));
        }
        assert_eq!(results.absences(), ["host: launch is absent: it is no machine"]);
    }

    #[test]
    fn the_best_of_a_family_is_the_fastest_but_for_our_own() {
        let system = |family| System::new(family, "", &[]);
        let families = [Family::Biv, Family::Biv, Family::Tcg, Family::Tcg];
        let mut results = Results::new(families.map(system).into());
        let number = numbers::ALL[0];
        for (system, value) in [2.0, 1.0, 6.0, 5.0].into_iter().enumerate() {
            let outcome = Outcome::Value(value);
            results.samples.push(Sample::new(1, system, number, outcome));
        }
        let best = |family| results.best(family, number).map(|spread| spread.median);
        assert_eq!(best(Family::Biv), Some(2.0));
        assert_eq!(best(Family::Tcg), Some(5.0));
        assert_eq!(best(Family::Uml), None);
    }
}

//! What the user asked for.

use std::path::PathBuf;

use crate::number::{Number, Root};
use crate::numbers;
use crate::systems::Family;
use crate::variants::{self, Variant};

/// For those who asked for something else.
pub const USAGE: &str = "\
usage: bench [OPTION]...
  --quick            fewer rounds, less of the applications: a quarter of an hour instead of hours
  --ladder           what each technique of biv is worth, and nothing else: twenty minutes
  --against LIST     systems to compare with: host, tcg, uml, gvisor (default: all)
  --only LIST        only numbers whose names contain one of these words
  --rounds N         rounds (default: 5 of the programs, 3 of the applications; 3 and 1 if quick)
  --variants LIST    ways to run biv, by name, or all (default: all, or only the first if quick)
  --pin              keep every one-processor system on one CPU, not only those that profit
  --out DIRECTORY    where tables, CSV, charts and logs go (default: target/bench)
  --list             print the names of numbers and variants, and end";

/// How much of one kind of number.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Rounds.
    pub rounds: usize,
    /// Milliseconds of one repetition of a function.
    pub milliseconds: u32,
    /// Repetitions of a function within a round.
    pub repeat: u32,
    /// Work of a script, in percent.
    pub scale: u32,
}

/// The command line.
#[derive(Debug)]
pub struct Options {
    /// How much of functions.
    pub programs: Amount,
    /// How much of applications.
    pub applications: Amount,
    /// Whom to compare with.
    pub against: Vec<Family>,
    /// What to measure.
    pub numbers: Vec<&'static Number>,
    /// How to run `biv`.
    pub variants: Vec<&'static Variant>,
    /// Keep all systems with one processor on one CPU.
    pub pin: bool,
    /// Where results go.
    pub out: PathBuf,
}

const FULL: Amount = Amount { rounds: 5, milliseconds: 100, repeat: 5, scale: 100 };
/// Programs for as long as ever: which way suits a thread is found out as it runs.
const QUICK: Amount = Amount { rounds: 3, scale: 25, ..FULL };
const LADDER: Amount = QUICK;

impl Options {
    /// Understand the command line.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            programs: FULL,
            applications: Amount { rounds: 3, ..FULL },
            against: Family::PEERS.to_vec(),
            numbers: numbers::ALL.to_vec(),
            variants: Vec::new(),
            pin: false,
            out: PathBuf::from("target/bench"),
        };
        let (mut quick, mut ladder, mut rounds) = (false, false, None);
        let (mut chosen, mut against, mut only) = (None, None, None);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--quick" => quick = true,
                "--pin" => options.pin = true,
                "--ladder" => ladder = true,
                "--against" => against = Some(families(&value()?)?),
                "--only" => only = Some(matching(&value()?)?),
                "--variants" => chosen = Some(value()?),
                "--out" => options.out = value()?.into(),
                "--rounds" => {
                    let number = value()?.parse().ok().filter(|&number: &usize| number > 0);
                    rounds = Some(number.ok_or("--rounds takes a number")?);
                }
                "--list" => return Err(listing()),
                other => return Err(format!("unknown option {other}")),
            }
        }
        if ladder {
            (options.programs, options.applications) = (LADDER, LADDER);
            (options.against, options.numbers) = (Vec::new(), numbers::LADDER.to_vec());
        }
        if quick {
            (options.programs, options.applications) = (QUICK, Amount { rounds: 1, ..QUICK });
        }
        options.against = against.unwrap_or(options.against);
        options.numbers = only.unwrap_or(options.numbers);
        if let Some(rounds) = rounds {
            (options.programs.rounds, options.applications.rounds) = (rounds, rounds);
        }
        let all = ladder || !quick;
        let chosen = chosen.unwrap_or_else(|| if all { "all" } else { "default" }.into());
        options.variants = variants::named(&chosen)?;
        Ok(options)
    }

    /// How much of the numbers that are measured in `root`.
    pub fn amount(&self, root: Root) -> Amount {
        match root {
            Root::Programs => self.programs,
            Root::Applications => self.applications,
        }
    }

    /// Whether anything needs `root`.
    pub fn needs(&self, root: Root) -> bool {
        self.numbers.iter().any(|number| number.work.shape().root == root)
    }
}

fn families(list: &str) -> Result<Vec<Family>, String> {
    let family = |name: &str| {
        let found = Family::PEERS.into_iter().find(|family| family.name() == name);
        found.ok_or(format!("--against knows host, tcg, uml, gvisor; not {name:?}"))
    };
    list.split(',').map(family).collect()
}

fn matching(list: &str) -> Result<Vec<&'static Number>, String> {
    let mut found: Vec<&Number> = Vec::new();
    for word in list.split(',') {
        let before = found.len();
        found.extend(numbers::ALL.into_iter().filter(|number| number.name.contains(word)));
        if word.is_empty() || found.len() == before {
            return Err(format!("no number has {word:?} in its name; see --list"));
        }
    }
    // In the order of the table, each once.
    Ok(numbers::ALL
        .into_iter()
        .filter(|number| found.iter().any(|f| f.name == number.name))
        .collect())
}

fn listing() -> String {
    let mut text = String::from("what can be measured:\n");
    for number in numbers::ALL {
        text.push_str(&format!("  {:<18} {}\n", number.name, number.title));
    }
    text.push_str("ways to run biv:\n");
    for variant in variants::ALL {
        let (options, parameters) = (variant.options.join(" "), variant.parameters);
        text.push_str(&format!("  {:<18} {options}{parameters}\n", variant.name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn words_choose_numbers_in_the_order_of_the_table() {
        let options = parse("--only fork,null --against host --quick --rounds 7").unwrap();
        let names: Vec<_> = options.numbers.iter().map(|number| number.name).collect();
        assert_eq!(names, ["null-syscall", "fork-exit", "fork-exec"]);
        assert_eq!(options.against, [Family::Host]);
        assert_eq!((options.programs.rounds, options.applications.scale), (7, 25));
        assert!(options.needs(Root::Programs) && !options.needs(Root::Applications));
    }

    #[test]
    fn the_ladder_is_about_nobody_else() {
        let options = parse("--ladder").unwrap();
        assert!(options.against.is_empty() && options.variants.len() == variants::ALL.len());
        assert_eq!(options.numbers.len(), numbers::LADDER.len());
        let options = parse("--ladder --quick --only fork --against tcg").unwrap();
        assert_eq!((options.against.len(), options.numbers.len()), (1, 2));
        assert_eq!((options.programs.rounds, options.variants.len()), (3, variants::ALL.len()));
        assert_eq!(parse("--quick").unwrap().variants.len(), 1);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["--only nothing-like-it", "--rounds 0", "--rounds", "--against kvm", "--fast"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}

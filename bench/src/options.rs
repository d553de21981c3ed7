//! What the user asked for.

use std::path::PathBuf;

use crate::family::Family;
use crate::number::{Number, Root, Work};
use crate::numbers;
use crate::variants::{self, Variant};

/// For those who asked for something else.
pub const USAGE: &str = "\
usage: bench [OPTION]...
  --quick            fewer rounds and starts: hours instead of a day
  --ladder           what each technique of biv is worth, and nothing else: twenty minutes
  --against LIST     systems to compare with: host, tcg, uml, gvisor (default: all)
  --only LIST        only numbers whose names contain one of these words; `program` stands for \
  all that are
                     measured in fresh machines, `function` for the others
  --rounds N         rounds of functions (default: 5 without and 3 with a distribution; 3 and 1 \
  if quick)
  --starts N         fresh machines for each program (default: 10; 3 if quick or in the ladder)
  --scale PERCENT    how much of each program to do (default: 100; 25 in the ladder)
  --variants LIST    ways to run biv, by name, or all (default: the first, or all in the ladder)
  --biv LIST         measure these, FILE or NAME=FILE, instead of building one: the first is what \
  promises are
                     about, the others are compared with it
  --stats LIST       keep those counters of biv's --stats whose names contain one of these words, \
  for each start
                     of a program
  --pin              keep every one-processor system on one CPU, not only those that profit
  --out DIRECTORY    where tables, CSV, charts and logs go (default: target/bench)
  --list             print the names of numbers and variants, and end";

/// How much of one kind of number.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Rounds; of programs, starts.
    pub rounds: usize,
    /// Milliseconds of one repetition of a function.
    pub milliseconds: u32,
    /// Repetitions of a function within a round.
    pub repeat: u32,
    /// Work of a program, in percent.
    pub scale: u32,
}

/// The command line.
#[derive(Debug)]
pub struct Options {
    /// How much of functions that need nothing else.
    pub functions: Amount,
    /// How much of functions that need a distribution's programs.
    pub with_programs: Amount,
    /// How much of whatever is measured in fresh machines.
    pub programs: Amount,
    /// Whom to compare with.
    pub against: Vec<Family>,
    /// What to measure.
    pub numbers: Vec<&'static Number>,
    /// How to run `biv`.
    pub variants: Vec<&'static Variant>,
    /// Which builds of it to run, by name; none: the one that is built.
    pub programs_of_biv: Vec<(String, PathBuf)>,
    /// Words in the names of the counters that are kept.
    pub counters: Vec<String>,
    /// Keep all systems with one processor on one CPU.
    pub pin: bool,
    /// Where results go.
    pub out: PathBuf,
}

const FULL: Amount = Amount { rounds: 5, milliseconds: 100, repeat: 5, scale: 100 };
/// Programs for as long as ever: which way suits a thread is found out as it runs.
const QUICK: Amount = Amount { rounds: 3, ..FULL };
const LADDER: Amount = Amount { scale: 25, ..QUICK };

impl Options {
    /// Understand the command line.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            functions: FULL,
            with_programs: Amount { rounds: 3, ..FULL },
            programs: Amount { rounds: 10, ..FULL },
            against: Family::PEERS.to_vec(),
            numbers: numbers::ALL.to_vec(),
            variants: Vec::new(),
            programs_of_biv: Vec::new(),
            counters: Vec::new(),
            pin: false,
            out: PathBuf::from("target/bench"),
        };
        let (mut quick, mut ladder) = (false, false);
        let (mut rounds, mut starts, mut scale) = (None, None, None);
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
                "--rounds" => rounds = Some(number(&argument, &value()?)?),
                "--starts" => starts = Some(number(&argument, &value()?)?),
                "--scale" => scale = Some(number(&argument, &value()?)?),
                "--biv" => options.programs_of_biv = builds(&value()?)?,
                "--stats" => options.counters = value()?.split(',').map(str::to_owned).collect(),
                "--list" => return Err(listing()),
                other => return Err(format!("unknown option {other}")),
            }
        }
        if ladder {
            (options.functions, options.with_programs, options.programs) = (LADDER, LADDER, LADDER);
            (options.against, options.numbers) = (Vec::new(), numbers::LADDER.to_vec());
        }
        if quick {
            (options.functions, options.with_programs) = (QUICK, Amount { rounds: 1, ..QUICK });
            options.programs = if ladder { LADDER } else { QUICK };
        }
        options.against = against.unwrap_or(options.against);
        options.numbers = only.unwrap_or(options.numbers);
        if let Some(rounds) = rounds {
            (options.functions.rounds, options.with_programs.rounds) = (rounds, rounds);
        }
        options.programs.rounds = starts.unwrap_or(options.programs.rounds);
        options.programs.scale = scale.map_or(options.programs.scale, |percent| percent as u32);
        let chosen = chosen.unwrap_or_else(|| if ladder { "all" } else { "default" }.into());
        options.variants = variants::named(&chosen)?;
        Ok(options)
    }

    /// How much of a kind of work.
    pub fn amount(&self, work: &Work) -> Amount {
        match work {
            Work::Outside | Work::Function => self.functions,
            Work::FunctionWithPrograms => self.with_programs,
            Work::Launch | Work::FreshFunction | Work::Program(_) => self.programs,
        }
    }

    /// Whether what machines have counted is kept.
    pub fn wants_counters(&self) -> bool {
        !self.counters.is_empty()
    }

    /// Whether anything needs `root`.
    pub fn needs(&self, root: Root) -> bool {
        self.numbers.iter().any(|number| number.work.shape().root == root)
    }
}

/// More than none.
fn number(option: &str, text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|&number| number > 0 && number <= 1_000_000);
    number.ok_or(format!("{option} takes a number"))
}

/// `FILE` or `NAME=FILE`, several with commas between them; the first is called `biv` in the tables.
fn builds(list: &str) -> Result<Vec<(String, PathBuf)>, String> {
    let build = |(index, word): (usize, &str)| {
        let (name, file) = word.split_once('=').unwrap_or(("", word));
        let name = match (index, name) {
            (0, "") => "biv".to_owned(),
            (_, "") => format!("biv {}", index + 1),
            (_, name) => format!("biv {name}"),
        };
        let path = PathBuf::from(file);
        if path.is_file() {
            Ok((name, path))
        } else {
            Err(format!("--biv: there is no file {file:?}"))
        }
    };
    list.split(',').enumerate().map(build).collect()
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
        let is_name = numbers::ALL.iter().any(|number| number.name == word);
        let is_meant = |number: &&Number| match is_name {
            true => number.name == word,
            false => number.work.kind() == word || number.name.contains(word),
        };
        found.extend(numbers::ALL.into_iter().filter(is_meant));
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
        let kind = number.work.kind();
        text.push_str(&format!("  {:<18} {kind:<8}  {}\n", number.name, number.title));
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
        assert_eq!((options.functions.rounds, options.with_programs.rounds), (7, 7));
        assert_eq!((options.programs.rounds, options.programs.scale), (3, 100));
        assert!(options.needs(Root::Programs) && !options.needs(Root::Applications));
        let names = |line| {
            parse(line).unwrap().numbers.iter().map(|number| number.name).collect::<Vec<_>>()
        };
        assert_eq!(names("--only build"), ["build"]);
        assert_eq!(names("--only build-,sqlite"), ["build-2", "build-sqlite", "sqlite"]);
    }

    #[test]
    fn the_ladder_is_about_nobody_else() {
        let options = parse("--ladder").unwrap();
        assert!(options.against.is_empty() && options.variants.len() == variants::ALL.len());
        assert_eq!(options.numbers.len(), numbers::LADDER.len());
        let options = parse("--ladder --quick --only fork --against tcg").unwrap();
        assert_eq!((options.against.len(), options.numbers.len()), (1, 2));
        assert_eq!((options.functions.rounds, options.variants.len()), (3, variants::ALL.len()));
        assert_eq!((options.programs.rounds, options.programs.scale), (3, 25));
        assert_eq!(parse("--quick").unwrap().variants.len(), 1);
    }

    #[test]
    fn programs_have_starts_and_other_numbers_rounds() {
        let options = parse("--only program").unwrap();
        assert!(options.numbers.len() > 5 && options.needs(Root::Applications));
        for number in &options.numbers {
            assert_eq!(options.amount(&number.work).rounds, 10, "{}", number.name);
        }
        let options = parse("--starts 4 --rounds 2 --scale 50").unwrap();
        assert_eq!((options.programs.rounds, options.programs.scale), (4, 50));
        assert_eq!((options.functions.rounds, options.functions.scale), (2, 100));
        let none_is_fresh = parse("--only function").unwrap().numbers;
        assert!(none_is_fresh.iter().all(|number| !number.work.is_fresh()));
    }

    #[test]
    fn builds_have_names() {
        let names = |list| {
            let named = builds(list)?;
            Ok::<_, String>(named.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        assert_eq!(names("/bin/sh,old=/bin/sh,/bin/sh").unwrap(), ["biv", "biv old", "biv 3"]);
        assert!(names("old=/no/such/file").is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "--only nothing-like-it",
            "--rounds 0",
            "--rounds",
            "--starts none",
            "--biv /no/such/file",
            "--against kvm",
            "--fast",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}

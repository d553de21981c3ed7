//! Rules from a text; the language is described at [`Rules`].
//!
//! Each line is read word by word into a rule that is not complete yet. A word that was there before, one that is no
//! word of the language, and a value that is none are errors that name the line, the word and what would be right.

use std::str::{FromStr, SplitWhitespace};

use crate::address::{PortId, Prefix};
use crate::bucket::Rate;
use crate::limits;
use crate::packet::{ethertype, protocol};
use crate::rule::{Action, Direction, Pattern, PatternError, PortRange, Rule, Rules};

/// What is wrong with a line of rules.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct RuleError {
    /// Which, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub problem: RuleProblem,
}

/// What can be wrong with a rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleProblem {
    /// The text is longer than it may be.
    #[error("the rules are longer than {} bytes", limits::RULES_BYTES)]
    TooLong,
    /// There are more than there may be.
    #[error("more than {most} rules in this direction: combine some", most = limits::MAX_RULES)]
    TooMany,
    /// It does not say in which direction.
    #[error(
        "a rule says `tx` (what the domain sends) or `rx` (what it receives), such as `rx drop`"
    )]
    NoDirection,
    /// It does not say what is to be done.
    #[error(
        "a rule says what is to be done: `accept`, `drop`, `to vif N`, `to uplink` or `rate N`"
    )]
    NoAction,
    /// Something is said twice.
    #[error("`{0}`: the rule has said this before, or something that excludes it")]
    Twice(String),
    /// It is no word of the language.
    #[error("`{0}` is no word of a rule{hint}", hint = suggestion(.0))]
    Unknown(String),
    /// A value is missing at the end of the line.
    #[error("`{0}` is followed by {1}")]
    Missing(String, &'static str),
    /// A value is not what it has to be.
    #[error("`{word} {value}`: {reason}")]
    Value {
        /// The word before it.
        word: String,
        /// The value.
        value: String,
        /// What it has to be.
        reason: String,
    },
    /// No frame can look like this.
    #[error("{0}")]
    Pattern(#[from] PatternError),
}

/// All words that a part of a rule begins with.
const WORDS: [&str; 25] = [
    "tx",
    "rx",
    "accept",
    "drop",
    "to",
    "rate",
    "burst",
    "arp",
    "ipv4",
    "ipv6",
    "ethertype",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "protocol",
    "fragment",
    "syn",
    "src",
    "dst",
    "src-port",
    "dst-port",
    "src-mac",
    "dst-mac",
    "uplink",
];

/// The word that was meant, perhaps.
fn suggestion(word: &str) -> String {
    const FAR: usize = 3;
    // What is long is no misspelt word, and is not worth comparing.
    let short = if word.len() <= 16 { word } else { "" };
    let nearest = WORDS.iter().map(|known| (distance(known, short), known)).min();
    match nearest {
        Some((far, known)) if far < FAR && far < known.len() => {
            format!("; did you mean `{known}`?")
        }
        _ => format!("; words are {}", WORDS[..24].join(", ")),
    }
}

/// How many letters are to be changed, added or taken away (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// A number with a unit.
fn number_with_unit(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 8] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    let split = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, unit)) => *unit,
        None if unit.is_empty() => 1,
        None => 0,
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let is_fine = unit > 0 && number.is_some();
    number.filter(|_| is_fine).ok_or_else(|| {
        "a number of bytes, with one of the units k, M, G, T, Ki, Mi, Gi, Ti or none".to_owned()
    })
}

/// A decimal number without a sign, or a hexadecimal one after `0x`.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let are_digits = digits.chars().all(|digit| digit.is_digit(radix));
    u64::from_str_radix(digits, radix).ok().filter(|_| are_digits)
}

fn small<T: TryFrom<u64>>(text: &str, what: &str) -> Result<T, String> {
    number(text).and_then(|number| T::try_from(number).ok()).ok_or_else(|| what.to_owned())
}

fn port_range(text: &str) -> Result<PortRange, String> {
    const WHAT: &str = "a port from 0 to 65535, or a range such as 8000-8099";
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Ok(PortRange { first: small(first, WHAT)?, last: small(last, WHAT)? })
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// A rule of which a part was read.
struct Reader<'a> {
    words: SplitWhitespace<'a>,
    direction: Option<Direction>,
    action: Option<Action>,
    burst: Option<u64>,
    pattern: Pattern,
}

/// Put something where nothing is.
fn set<T>(place: &mut Option<T>, value: T, word: &str) -> Result<(), RuleProblem> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(RuleProblem::Twice(word.to_owned())),
    }
}

fn flag(place: &mut bool, word: &str) -> Result<(), RuleProblem> {
    match std::mem::replace(place, true) {
        false => Ok(()),
        true => Err(RuleProblem::Twice(word.to_owned())),
    }
}

impl<'a> Reader<'a> {
    fn new(line: &'a str) -> Self {
        let words = line.split_whitespace();
        Self { words, direction: None, action: None, burst: None, pattern: Pattern::default() }
    }

    /// The value after a word.
    fn value<T>(
        &mut self,
        word: &str,
        what: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, RuleProblem> {
        let value = self.words.next();
        let value = value.ok_or_else(|| RuleProblem::Missing(word.to_owned(), what))?;
        let wrong = |reason| {
            let (word, value) = (word.to_owned(), value.to_owned());
            RuleProblem::Value { word, value, reason }
        };
        parse(value).map_err(wrong)
    }

    /// A word that belongs to what the frame must look like; whether it does.
    fn pattern_word(&mut self, word: &str) -> Result<bool, RuleProblem> {
        const PREFIX: &str = "an address or a prefix, such as 10.1.0.0/16";
        const PORTS: &str = "a port or a range of ports, such as 8000-8099";
        const MAC: &str = "an address of Ethernet, such as 02:16:3e:00:00:01";
        const ETHERTYPE: &str = "an ethertype from 0x0600 to 0xffff";
        const PROTOCOL: &str = "a protocol's number from 0 to 255";
        match word {
            "arp" => set(&mut self.pattern.ethertype, ethertype::ARP, word)?,
            "ipv4" => set(&mut self.pattern.ethertype, ethertype::IPV4, word)?,
            "ipv6" => set(&mut self.pattern.ethertype, ethertype::IPV6, word)?,
            "ethertype" => {
                let value = self.value(word, ETHERTYPE, |text| small(text, ETHERTYPE))?;
                set(&mut self.pattern.ethertype, value, word)?;
            }
            "tcp" => set(&mut self.pattern.protocol, protocol::TCP, word)?,
            "udp" => set(&mut self.pattern.protocol, protocol::UDP, word)?,
            "icmp" => set(&mut self.pattern.protocol, protocol::ICMP, word)?,
            "icmp6" => set(&mut self.pattern.protocol, protocol::ICMPV6, word)?,
            "protocol" => {
                let value = self.value(word, PROTOCOL, |text| small(text, PROTOCOL))?;
                set(&mut self.pattern.protocol, value, word)?;
            }
            "fragment" => flag(&mut self.pattern.later_fragment, word)?,
            "syn" => flag(&mut self.pattern.opens, word)?,
            "src" => {
                let value = self.value(word, PREFIX, parsed::<Prefix>)?;
                set(&mut self.pattern.source, value, word)?;
            }
            "dst" => {
                let value = self.value(word, PREFIX, parsed::<Prefix>)?;
                set(&mut self.pattern.destination, value, word)?;
            }
            "src-port" => {
                let value = self.value(word, PORTS, port_range)?;
                set(&mut self.pattern.source_ports, value, word)?;
            }
            "dst-port" => {
                let value = self.value(word, PORTS, port_range)?;
                set(&mut self.pattern.destination_ports, value, word)?;
            }
            "src-mac" => {
                let value = self.value(word, MAC, parsed)?;
                set(&mut self.pattern.source_mac, value, word)?;
            }
            "dst-mac" => {
                let value = self.value(word, MAC, parsed)?;
                set(&mut self.pattern.destination_mac, value, word)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Any other word.
    fn word(&mut self, word: &str) -> Result<(), RuleProblem> {
        const BYTES: &str = "a number of bytes, such as 10M";
        match word {
            "tx" => set(&mut self.direction, Direction::Transmit, word),
            "rx" => set(&mut self.direction, Direction::Receive, word),
            "accept" => set(&mut self.action, Action::Accept, word),
            "drop" => set(&mut self.action, Action::Drop, word),
            "to" => {
                let port = self.port()?;
                set(&mut self.action, Action::To(port), word)
            }
            "rate" => {
                let rate = self.value(word, BYTES, number_with_unit)?;
                set(&mut self.action, Action::Rate(Rate::new(rate)), word)
            }
            "burst" => {
                let burst = self.value(word, BYTES, number_with_unit)?;
                set(&mut self.burst, burst, word)
            }
            _ => Err(RuleProblem::Unknown(word.to_owned())),
        }
    }

    /// Where `to` leads.
    fn port(&mut self) -> Result<PortId, RuleProblem> {
        const PORT: &str = "`vif N` or `uplink`";
        let is_vif = self.value("to", PORT, |text| match text {
            "vif" => Ok(true),
            "uplink" => Ok(false),
            _ => Err(format!("it goes to {PORT}")),
        })?;
        const NUMBER: &str = "the number of a VIF, from 0 to 65535";
        match is_vif {
            true => self.value("vif", NUMBER, |text| small(text, NUMBER)).map(PortId::Vif),
            false => Ok(PortId::Uplink),
        }
    }

    fn read(mut self) -> Result<(Direction, Rule), RuleProblem> {
        while let Some(word) = self.words.next() {
            if !self.pattern_word(word)? {
                self.word(word)?;
            }
        }
        let direction = self.direction.ok_or(RuleProblem::NoDirection)?;
        let mut action = self.action.ok_or(RuleProblem::NoAction)?;
        match (&mut action, self.burst) {
            (Action::Rate(rate), Some(burst)) => rate.burst_bytes = burst,
            (_, Some(_)) => return Err(RuleProblem::Missing("burst".to_owned(), BURST)),
            (_, None) => {}
        }
        let rule = Rule { action, pattern: self.pattern };
        rule.check()?;
        Ok((direction, rule))
    }
}

const BURST: &str = "a number, and belongs to `rate N` in the same rule";

impl FromStr for Rules {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text.len() > limits::RULES_BYTES {
            return Err(RuleError { line: 1, problem: RuleProblem::TooLong });
        }
        let mut rules = Self::default();
        for (index, line) in text.lines().enumerate() {
            let fail = |problem| RuleError { line: index + 1, problem };
            let said = line.split_once('#').map_or(line, |(said, _)| said);
            if said.trim().is_empty() {
                continue;
            }
            let (direction, rule) = Reader::new(said).read().map_err(fail)?;
            let list = match direction {
                Direction::Transmit => &mut rules.transmit,
                Direction::Receive => &mut rules.receive,
            };
            if list.len() == limits::MAX_RULES {
                return Err(fail(RuleProblem::TooMany));
            }
            list.push(rule);
        }
        Ok(rules)
    }
}

//! Names of domains, which are also names of directories. A name is checked once, where it comes
//! in: a [`Name`] cannot lead out of the registry.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name; longer ones make no path of a socket that the host takes.
const LENGTH_MAX: usize = 63;

/// A name that can be a directory's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Whether it is of letters, digits, `_`, `.` and `-`, of which the first is a letter or a digit: then it is
/// the name of one file wherever it is put, and of no option.
pub fn is_plain(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// What is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid domain name {0:?}: use at most {LENGTH_MAX} letters, digits, \"_\", \".\" and \"-\", \
     and begin with a letter or a digit"
)]
pub struct Error(String);

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Name, Error> {
        if is_plain(text) && text.len() <= LENGTH_MAX {
            Ok(Name(text.to_owned()))
        } else {
            Err(Error(text.chars().take(2 * LENGTH_MAX).collect()))
        }
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(text: String) -> Result<Name, Error> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Name {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name for one that was given none, of a random number.
    #[must_use]
    pub fn generated(random: u64) -> Name {
        let pick =
            |words: &[&'static str], shift: u32| words[(random >> shift) as usize % words.len()];
        Name(format!("{}-{}-{}", pick(&LIKE, 0), pick(&WHO, 16), (random >> 32) % 1000))
    }
}

const LIKE: [&str; 24] = [
    "brisk", "calm", "clear", "cool", "early", "fresh", "grey", "high", "keen", "late", "light",
    "mild", "misty", "quiet", "rainy", "rocky", "snowy", "steep", "still", "sunny", "swift",
    "warm", "wild", "windy",
];

const WHO: [&str; 24] = [
    "badger", "bear", "buzzard", "chamois", "crane", "crow", "deer", "dipper", "eagle", "falcon",
    "fox", "hare", "heron", "ibex", "kite", "lynx", "marmot", "marten", "otter", "owl", "raven",
    "stoat", "trout", "wolf",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_path_is_no_name() {
        let check = |text: &str, is_name: bool| {
            assert_eq!(text.parse::<Name>().is_ok(), is_name, "{text:?}");
        };
        check("web", true);
        check("web-1.example_2", true);
        check("0", true);
        check(&"x".repeat(63), true);
        for text in ["", ".", "..", "../web", "/web", "web/", "a/b", ".web", "-web", "_", "a b"] {
            check(text, false);
        }
        check("w\0b", false);
        check("w\nb", false);
        check("wéb", false);
        check(&"x".repeat(64), false);
    }

    #[test]
    fn generated_names_are_names() {
        for random in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            let name = Name::generated(random);
            assert_eq!(name.as_str().parse().as_ref(), Ok(&name));
        }
    }
}

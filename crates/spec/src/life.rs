//! The name of a machine, and when it ends.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Name, Other, is_default};

/// The life of a domain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Life {
    /// Its name [default: a generated one if it is detached; else none, and other commands do not know it].
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub name: Option<Name>,
    /// It is detached: it runs in the background.
    #[serde(skip_serializing_if = "is_default")]
    pub detached: bool,
    /// The registry keeps nothing of it when it has ended.
    #[serde(skip_serializing_if = "is_default")]
    pub remove: bool,
    /// Whether it is started again when it has ended, until somebody stops it: `no`, `on-failure`, `on-failure:N` or
    /// `always`. Only a detached domain that is not removed is [default: no].
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "String")]
    pub restart: Restart,
    /// Labels, which mean something to who gave them.
    #[serde(skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
    /// The time limit in seconds; the domain then ends with status 124.
    #[serde(
        serialize_with = "write",
        deserialize_with = "read",
        skip_serializing_if = "is_default"
    )]
    #[schemars(with = "Option<f64>")]
    pub timeout: Option<Duration>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

impl Life {
    /// Whether its parts fit together; what does not, for people.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err("a time that is up at once (life.timeout)".to_owned());
        }
        let is_bad = |name: &&String| name.is_empty() || name.contains('=');
        if let Some(name) = self.labels.keys().find(is_bad) {
            return Err(format!("no name of a label: {name:?} (life.labels)"));
        }
        if self.restart != Restart::No && (!self.detached || self.remove) {
            return Err("only a detached domain that is not removed when it has ended is started \
                        again (life.restart, life.detached, life.remove)"
                .to_owned());
        }
        Ok(())
    }
}

/// When a domain is started again, by a process of its own that supervises it: a text in JSON, such as
/// `on-failure:3`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Restart {
    /// Never.
    #[default]
    No,
    /// When it has ended with another status than 0: so often in a row at most, if there is a number.
    OnFailure(Option<u32>),
    /// Whenever it has ended.
    Always,
}

impl FromStr for Restart {
    type Err = &'static str;

    /// `no`, `on-failure`, `on-failure:N`, `always` or `unless-stopped`, which is the same: without a daemon, nothing
    /// starts a domain that was stopped.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "give no, on-failure, on-failure:N, always or unless-stopped";
        match text.split_once(':') {
            None if text == "no" => Ok(Self::No),
            None if text == "on-failure" => Ok(Self::OnFailure(None)),
            None if text == "always" || text == "unless-stopped" => Ok(Self::Always),
            Some(("on-failure", most)) => {
                Ok(Self::OnFailure(Some(most.parse().map_err(|_| WRONG)?)))
            }
            _ => Err(WRONG),
        }
    }
}

impl TryFrom<String> for Restart {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Restart> for String {
    fn from(restart: Restart) -> Self {
        match restart {
            Restart::No => "no".to_owned(),
            Restart::OnFailure(None) => "on-failure".to_owned(),
            Restart::OnFailure(Some(most)) => format!("on-failure:{most}"),
            Restart::Always => "always".to_owned(),
        }
    }
}

impl Restart {
    /// Whether it is to be started again after the end with this status, and so many starts in a row.
    #[must_use]
    pub fn applies(self, status: u8, count: u32) -> bool {
        match self {
            Self::No => false,
            Self::OnFailure(most) => status != 0 && most.is_none_or(|most| count < most),
            Self::Always => true,
        }
    }
}

fn write<S: Serializer>(timeout: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    timeout.map(|timeout| timeout.as_secs_f64()).serialize(to)
}

fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let seconds = Option::<f64>::deserialize(from)?;
    let duration = seconds.map(Duration::try_from_secs_f64).transpose();
    duration.map_err(serde::de::Error::custom)
}

/// A label of a command line, NAME=VALUE or NAME.
///
/// # Errors
///
/// It has no name.
pub fn parse_label(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    match name.is_empty() {
        true => Err("a label has a name"),
        false => Ok((name.to_owned(), value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_after_which_ends_a_domain_starts() {
        let check = |text: &str, expected: [bool; 4]| {
            let policy: Restart = text.parse().unwrap();
            let ends = [(0, 0), (1, 0), (1, 2), (137, 3)];
            assert_eq!(
                ends.map(|(status, count)| policy.applies(status, count)),
                expected,
                "{text}"
            );
            let written = serde_json::to_string(&policy).unwrap();
            assert_eq!(serde_json::from_str::<Restart>(&written).unwrap(), policy);
        };
        check("no", [false; 4]);
        check("on-failure", [false, true, true, true]);
        check("on-failure:2", [false, true, false, false]);
        check("always", [true; 4]);
        check("unless-stopped", [true; 4]);
        for wrong in ["", "never", "on-failure:", "on-failure:x", "on-failure:-1", "always:3"] {
            assert!(wrong.parse::<Restart>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn labels_have_names() {
        let label = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_label("a"), label("a", ""));
        assert_eq!(parse_label("a=b=c"), label("a", "b=c"));
        assert!(parse_label("=b").is_err() && parse_label("").is_err());
    }
}

//! Texts and commands as YAML has them.

use serde::Deserialize;

/// A text, or what YAML takes for something else.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Truth(bool),
    /// Another number, as it is written.
    Real(serde_json::Number),
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => out.write_str(text),
            Self::Number(number) => write!(out, "{number}"),
            Self::Truth(truth) => write!(out, "{truth}"),
            Self::Real(number) => write!(out, "{number}"),
        }
    }
}

/// A command: a line, or its words.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Words {
    Line(String),
    List(Vec<Scalar>),
}

impl Words {
    /// Its words.
    ///
    /// # Errors
    ///
    /// A line has a quotation without end.
    pub(crate) fn list(&self) -> Result<Vec<String>, String> {
        match self {
            Self::Line(line) => {
                shlex::split(line).ok_or_else(|| format!("a quotation without end: {line:?}"))
            }
            Self::List(words) => Ok(words.iter().map(Scalar::to_string).collect()),
        }
    }
}

//! The name of a machine, and when it ends.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Name, Other, is_default};

/// The life of a domain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Life {
    /// Its name [default: one that is made up, if it runs by itself; else other commands do not know it].
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub name: Option<Name>,
    /// It runs by itself, without whoever has started it.
    #[serde(skip_serializing_if = "is_default")]
    pub detached: bool,
    /// Nothing of it is kept when it has ended.
    #[serde(skip_serializing_if = "is_default")]
    pub remove: bool,
    /// Seconds after which it is ended, with status 124.
    #[serde(
        serialize_with = "write",
        deserialize_with = "read",
        skip_serializing_if = "is_default"
    )]
    #[schemars(with = "Option<f64>")]
    pub timeout: Option<Duration>,
    /// What this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

fn write<S: Serializer>(timeout: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    timeout.map(|timeout| timeout.as_secs_f64()).serialize(to)
}

fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let seconds = Option::<f64>::deserialize(from)?;
    let duration = seconds.map(Duration::try_from_secs_f64).transpose();
    duration.map_err(serde::de::Error::custom)
}

//! The name of a machine, and when it ends.

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

fn write<S: Serializer>(timeout: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    timeout.map(|timeout| timeout.as_secs_f64()).serialize(to)
}

fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let seconds = Option::<f64>::deserialize(from)?;
    let duration = seconds.map(Duration::try_from_secs_f64).transpose();
    duration.map_err(serde::de::Error::custom)
}

//! Errors in a description.

use serde::Deserialize;

use crate::VERSION;

/// Why a text describes no machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no JSON, or not of this shape.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// It is of another version.
    #[error("unsupported version {0}; this biv supports version {VERSION}")]
    Version(u32),
    /// Its parts do not fit together.
    #[error("{0}")]
    Contradiction(String),
}

/// As much of a description as every version has.
#[derive(Deserialize)]
pub(crate) struct Version {
    pub(crate) version: u32,
}

//! What a domain is worth to the host's processors, among other domains.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Other, is_default};

/// The share of the host's processors that a paravirtual domain gets while domains want more than there are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Scheduling {
    /// Its share in proportion to those of others, 1 to 65535 [default: 256].
    pub weight: u32,
    /// The most that it gets, even if nobody else wants it: percent of one processor [default: no limit].
    #[serde(skip_serializing_if = "is_default")]
    pub cap: Option<u32>,
    /// By how many milliseconds of its time it is favoured when it wakes up [default: 0].
    #[serde(skip_serializing_if = "is_default")]
    pub warp: u32,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// The greatest weight.
const WEIGHT_MAX: u32 = 65_535;

/// The greatest cap: 64 processors.
const CAP_MAX: u32 = 6400;

/// The greatest warp, in milliseconds.
const WARP_MAX: u32 = 10_000;

impl Default for Scheduling {
    fn default() -> Self {
        Self { weight: 256, cap: None, warp: 0, other: Other::default() }
    }
}

impl Scheduling {
    /// Whether it makes sense.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] says what does not.
    pub fn check(&self) -> Result<(), Error> {
        let complaint = match self {
            Self { weight, .. } if !(1..=WEIGHT_MAX).contains(weight) => {
                format!("a weight is 1 to {WEIGHT_MAX} (machine.scheduling.weight)")
            }
            Self { cap: Some(cap), .. } if !(1..=CAP_MAX).contains(cap) => {
                format!("a cap is 1 to {CAP_MAX} percent (machine.scheduling.cap)")
            }
            Self { warp, .. } if *warp > WARP_MAX => {
                format!("a warp is {WARP_MAX} milliseconds at most (machine.scheduling.warp)")
            }
            _ => return Ok(()),
        };
        Err(Error::Contradiction(complaint))
    }
}

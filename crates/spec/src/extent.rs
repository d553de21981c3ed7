//! Parts of an image that are a disk of the guest's together: a virtual block device (VBD) as Xen's paper has it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Other, is_default, size};

/// As many of a disk, at most.
pub(crate) const MAX_EXTENTS: usize = 1024;

/// What an extent begins and ends at.
const SECTOR_BYTES: u64 = 512;

/// A part of an image.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Extent {
    /// Where it begins: bytes, whole sectors of 512.
    pub start: u64,
    /// How long it is: bytes, whole sectors.
    pub bytes: u64,
    /// The guest may not write to it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

impl Extent {
    /// From this byte on, so many bytes.
    #[must_use]
    pub fn new(start: u64, bytes: u64) -> Self {
        Self { start, bytes, ..Self::default() }
    }

    /// The byte behind it, if there can be one.
    fn end(&self) -> Option<u64> {
        self.start.checked_add(self.bytes).filter(|end| *end <= i64::MAX as u64)
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (one, two) = (self.end().unwrap_or(u64::MAX), other.end().unwrap_or(u64::MAX));
        self.start < two && other.start < one
    }
}

impl FromStr for Extent {
    type Err = String;

    /// Reads `START+LENGTH[:ro]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (place, read_only) = match text.strip_suffix(":ro") {
            Some(place) => (place, true),
            None => (text, false),
        };
        let (start, bytes) = place
            .split_once('+')
            .ok_or_else(|| format!("extent {text}: write START+LENGTH, such as extent=64M+1G"))?;
        let parse = |part| size::parse(part).map_err(|error| format!("extent {text}: {error}"));
        let extent = Self { read_only, ..Self::new(parse(start)?, parse(bytes)?) };
        extent
            .complaint()
            .map_or(Ok(extent), |complaint| Err(format!("extent {text}: {complaint}")))
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rights = if self.read_only { ":ro" } else { "" };
        write!(out, "{}+{}{rights}", self.start, self.bytes)
    }
}

impl Extent {
    /// What is wrong with it, if anything is.
    pub(crate) fn complaint(&self) -> Option<&'static str> {
        let is_whole = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES);
        match self {
            _ if self.bytes == 0 => Some("an extent is not empty"),
            _ if self.end().is_none() => Some("an extent ends before byte 2^63"),
            _ if !is_whole(self.start) || !is_whole(self.bytes) => {
                Some("an extent is whole sectors of 512 bytes")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_a_place_and_a_length() {
        let check = |text: &str, expected: Option<Extent>| {
            assert_eq!(text.parse().ok(), expected, "{text}");
        };
        check("0+512", Some(Extent::new(0, 512)));
        check("1M+2G", Some(Extent::new(1 << 20, 2 << 30)));
        check("1K+1K:ro", Some(Extent { read_only: true, ..Extent::new(1024, 1024) }));
        for wrong in ["", "0", "+", "0+0", "1+512", "512+1", "0+512:rw", "0+-512", "8388608T+512"] {
            check(wrong, None);
        }
        let extent: Extent = "1K+1M:ro".parse().unwrap();
        assert_eq!(extent.to_string().parse(), Ok(extent));
    }
}

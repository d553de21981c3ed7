//! Firmware that a machine starts instead of a kernel.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Other, disk, text};

/// The firmware of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Firmware {
    /// An image for QEMU's PC, such as OVMF.fd: its bytes end at 4 GiB, and what the guest writes there is lost.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

impl Firmware {
    /// Reads `FILE`; in its name, two commas are one.
    ///
    /// # Errors
    ///
    /// What is wrong with the word.
    pub fn parse(text: OsString) -> Result<Self, String> {
        let mut parts = disk::split(text.as_bytes()).into_iter();
        let path = parts.next().unwrap_or_default();
        if path.is_empty() {
            return Err("no file is named".to_owned());
        }
        if let Some(part) = parts.next() {
            let part = String::from_utf8_lossy(&part);
            return Err(format!(
                "'{part}' says nothing of firmware (a comma in the name of a file is written twice)"
            ));
        }
        Ok(Self { path: OsString::from_vec(path).into(), ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_is_a_file() {
        let path = |text: &str| Firmware::parse(text.into()).map(|firmware| firmware.path);
        assert_eq!(path("/a/OVMF.fd"), Ok("/a/OVMF.fd".into()));
        assert_eq!(path("a,,b"), Ok("a,b".into()));
        for wrong in ["", ",", "a,", "a,ro"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }
}

//! Firmware that a machine starts instead of a kernel.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Other, disk, is_default, text};

/// The firmware of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Firmware {
    /// An image for QEMU's PC, such as OVMF.fd: its bytes end at 4 GiB, and what the guest writes there is lost.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// The variables of an image that has them in a file of its own, such as OVMF_CODE.fd: flash directly below it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub vars: Option<Variables>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// The variables of firmware.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Variables {
    /// The file, such as OVMF_VARS.fd.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// What the guest sets is written to the file. Otherwise it is kept in memory and lost with the machine.
    #[serde(default, skip_serializing_if = "is_default")]
    pub keep: bool,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

impl Firmware {
    /// Reads `FILE[,vars=FILE[,keep]]`; in the name of a file, two commas are one.
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
        let mut firmware = Self { path: OsString::from_vec(path).into(), ..Self::default() };
        for part in parts {
            firmware.add(&part)?;
        }
        Ok(firmware)
    }

    /// Take a part of the word.
    fn add(&mut self, part: &[u8]) -> Result<(), String> {
        let file = part.strip_prefix(b"vars=").filter(|file| !file.is_empty());
        match (file, &mut self.vars) {
            (Some(file), None) => {
                let path = OsStr::from_bytes(file).into();
                self.vars = Some(Variables { path, ..Variables::default() });
            }
            (Some(_), Some(_)) => return Err("it has one file of variables (vars=FILE)".to_owned()),
            (None, Some(variables)) if part == b"keep" => variables.keep = true,
            (None, None) if part == b"keep" => {
                return Err(
                    "what is kept are its variables; name their file before, vars=FILE,keep"
                        .to_owned(),
                );
            }
            (None, _) => {
                let part = String::from_utf8_lossy(part);
                return Err(format!(
                    "'{part}' is neither vars=FILE nor keep (a comma in the name of a file is \
                     written twice)"
                ));
            }
        }
        Ok(())
    }

    /// Whether something is kept that the guest writes.
    #[must_use]
    pub fn keeps_writes(&self) -> bool {
        self.vars.as_ref().is_some_and(|variables| variables.keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_is_a_file_and_that_of_its_variables() {
        let variables = |(path, keep): (&str, bool)| {
            let path = path.into();
            Variables { path, keep, ..Variables::default() }
        };
        let check = |text: &str, path: &str, vars: Option<(&str, bool)>| {
            let (path, vars) = (path.into(), vars.map(variables));
            let expected = Firmware { path, vars, ..Firmware::default() };
            let parsed = Firmware::parse(text.into());
            assert_eq!(parsed.as_ref().map(Firmware::keeps_writes), Ok(text.ends_with(",keep")));
            assert_eq!(parsed, Ok(expected), "{text}");
        };
        check("/a/OVMF.fd", "/a/OVMF.fd", None);
        check("a,,b", "a,b", None);
        check("a,vars=b", "a", Some(("b", false)));
        check("a,vars=/b,,c,keep", "a", Some(("/b,c", true)));
        check("a,vars=keep", "a", Some(("keep", false)));
        let wrongs =
            ["", ",", "a,", "a,ro", "a,keep", "a,keep,vars=b", "a,vars=", "a,vars=b,vars=c"];
        for wrong in wrongs.into_iter().chain(["a,vars=b,", "a,vars=b,ro", ",vars=b", "a,vars"]) {
            assert!(Firmware::parse(wrong.into()).is_err(), "{wrong}");
        }
    }
}

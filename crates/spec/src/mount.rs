//! Directories of the host that a guest mounts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Other, is_default, text};

/// A directory of the host in the guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mount {
    /// Its path on the host.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub host: PathBuf,
    /// Its path in the guest, which is absolute.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub guest: PathBuf,
    /// The guest may not write.
    #[serde(default, skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// The guest may give files set-user-ID and set-group-ID bits and `security.*` attributes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suid: bool,
    /// File systems of unknown kinds below it are shown as well.
    #[serde(default, skip_serializing_if = "is_default")]
    pub anyfs: bool,
    /// Nothing else changes it while the machine runs, so that the guest's caches stay valid.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exclusive: bool,
    /// The same, and the guest may write back later: when files are closed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub writeback: bool,
    /// Its files have no extended attributes in the guest, so that the guest does not ask for any.
    #[serde(default, skip_serializing_if = "is_default")]
    pub noxattr: bool,
    /// Its files belong to whom the guest gives them: to subordinate users of the host's (subuid(5)), or else in
    /// attributes of theirs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub owners: bool,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

impl FromStr for Mount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split(':').collect();
        let (host, guest, options) = match parts[..] {
            [host, guest] => (host, guest, "rw"),
            [host, guest, options] => (host, guest, options),
            _ => return Err("expected HOST:GUEST or HOST:GUEST:ro".to_owned()),
        };
        let mut mount = Self { host: host.into(), guest: guest.into(), ..Self::default() };
        for option in options.split(',') {
            match option {
                "ro" => mount.read_only = true,
                "rw" => mount.read_only = false,
                "suid" => mount.suid = true,
                "anyfs" => mount.anyfs = true,
                "exclusive" => mount.exclusive = true,
                "writeback" => {
                    mount.exclusive = true;
                    mount.writeback = true;
                }
                "noxattr" => mount.noxattr = true,
                "owners" => mount.owners = true,
                other => {
                    return Err(format!(
                        "a volume is ro or rw, suid, anyfs, exclusive, writeback, noxattr, owners, \
                         but not {other:?}"
                    ));
                }
            }
        }
        match mount.is_placed() {
            true => Ok(mount),
            false => Err(MISPLACED.to_owned()),
        }
    }
}

const MISPLACED: &str = "HOST is a directory, GUEST an absolute path other than / (see --root)";

impl Mount {
    /// Whether it names a directory, and a place for it.
    fn is_placed(&self) -> bool {
        let is_somewhere = self.guest.is_absolute() && self.guest != Path::new("/");
        !self.host.as_os_str().is_empty() && is_somewhere
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.is_placed() {
            true => Ok(()),
            false => Err(Error::Contradiction(format!("{MISPLACED} (mounts)"))),
        }
    }

    /// The word that is read as this.
    #[must_use]
    pub fn word(&self) -> OsString {
        let options = [
            ("ro", self.read_only),
            ("suid", self.suid),
            ("anyfs", self.anyfs),
            ("exclusive", self.exclusive && !self.writeback),
            ("writeback", self.writeback),
            ("noxattr", self.noxattr),
            ("owners", self.owners),
        ];
        let options: Vec<_> =
            options.into_iter().filter(|(_, is_said)| *is_said).map(|(name, _)| name).collect();
        let mut word = self.host.clone().into_os_string();
        word.push(":");
        word.push(&self.guest);
        if !options.is_empty() {
            word.push(":");
            word.push(options.join(","));
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_two_places_and_how() {
        let mount: Mount = "src:/usr/src:ro".parse().unwrap();
        let (host, guest) = ("src".into(), "/usr/src".into());
        let expected = Mount { host, guest, read_only: true, ..Mount::default() };
        assert_eq!(mount, expected);
        let mount: Mount = "src:/usr/src:ro,suid,anyfs".parse().unwrap();
        assert_eq!(mount, Mount { suid: true, anyfs: true, ..expected });
        for word in ["src:/usr/src:ro,exclusive,noxattr", "src:/usr/src:writeback,owners"] {
            let mount: Mount = word.parse().unwrap();
            assert!(mount.exclusive);
            assert_eq!(mount.owners, word.contains("owners"));
            assert_eq!(mount.noxattr, word.contains("noxattr"));
            assert_eq!(mount.writeback, word.contains("writeback"));
            assert_eq!(mount.word(), word);
        }
        assert!(!"/a:/b".parse::<Mount>().unwrap().read_only);
        for wrong in ["", "/a", ":/b", "/a:b", "/a:/", "/a:/b:rx", "/a:/b:ro:x"] {
            assert!(wrong.parse::<Mount>().is_err(), "{wrong}");
        }
    }
}

//! Saved state as a list of parts: what each device has said, by its kind.
//!
//! A part says what it is of (a kind and an instance, as QEMU's migration sections do) and in which version its bytes
//! are. Whoever goes on takes the parts that it knows, by kind; so a new device, or a new version of one, does not
//! change what the others have said. A machine goes on only if nothing is missing and nothing is left.
//!
//! A kind's version goes up when what it writes changes. Its `restore` then says from which version on it reads
//! ([`Parts::take_versions`]); what it cannot read is refused, by name.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Unfit, decode, encode};

/// The most parts of one machine, far more than devices have.
const MAX_PARTS: usize = 4096;

/// What one device has said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What it is of ("virtio-rng").
    pub kind: String,
    /// Which of this kind, from 0 on in the order of the machine's devices.
    pub instance: u32,
    /// The version of its bytes, from 1 on.
    pub version: u32,
    /// Its state.
    pub bytes: Vec<u8>,
}

/// The state of a machine's devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts(Vec<Part>);

impl Parts {
    /// Those that these bytes are.
    ///
    /// # Errors
    ///
    /// [`Unfit`] when they are none, or have one instance of a kind twice.
    pub fn from_bytes(bytes: &[u8], what: &str) -> Result<Self, Unfit> {
        let parts: Vec<Part> = decode(bytes, what)?;
        if parts.len() > MAX_PARTS {
            return Err(Unfit::State(what.to_owned()));
        }
        let mut names: Vec<_> = parts.iter().map(|part| (&part.kind, part.instance)).collect();
        names.sort();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Unfit::Twice(pair[0].0.clone(), pair[0].1)),
            None => Ok(Self(parts)),
        }
    }

    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(&self.0)
    }

    /// One more part, the next instance of its kind.
    pub fn add<T: Serialize>(&mut self, kind: &str, version: u32, state: &T) {
        self.add_bytes(kind, version, encode(state));
    }

    /// The same, of bytes.
    pub fn add_bytes(&mut self, kind: &str, version: u32, bytes: Vec<u8>) {
        let instance = self.0.iter().filter(|part| part.kind == kind).count() as u32;
        self.0.push(Part { kind: kind.to_owned(), instance, version, bytes });
    }

    /// Whether there is a part of this kind.
    #[must_use]
    pub fn has(&self, kind: &str) -> bool {
        self.0.iter().any(|part| part.kind == kind)
    }

    /// Take the first part of a kind, in a version up to `newest`: the device that goes on from it knows all of these.
    ///
    /// # Errors
    ///
    /// [`Unfit`] when there is none, or it has another version.
    pub fn take_versions(&mut self, kind: &str, newest: u32) -> Result<Part, Unfit> {
        let ours = self.0.iter().enumerate().filter(|(_, part)| part.kind == kind);
        let first = ours.min_by_key(|(_, part)| part.instance);
        let (at, part) = first.ok_or_else(|| Unfit::Missing(kind.to_owned()))?;
        if !(1..=newest).contains(&part.version) {
            return Err(Unfit::Version { kind: kind.to_owned(), found: part.version, newest });
        }
        Ok(self.0.remove(at))
    }

    /// Take the first part of a kind that has had one version only.
    ///
    /// # Errors
    ///
    /// [`Unfit`] when there is none, it has another version, or is no such state.
    pub fn take<T: DeserializeOwned>(&mut self, kind: &str) -> Result<T, Unfit> {
        decode(&self.take_versions(kind, 1)?.bytes, kind)
    }

    /// Nothing may be left.
    ///
    /// # Errors
    ///
    /// [`Unfit`] that names what this machine has not.
    pub fn finish(self) -> Result<(), Unfit> {
        match self.0.into_iter().next() {
            Some(Part { kind, version, .. }) => Err(Unfit::Unknown { kind, version }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Parts {
        let mut parts = Parts::default();
        parts.add("virtio-blk", 1, &7_u32);
        parts.add("virtio-rng", 1, &"some".to_owned());
        parts.add("virtio-blk", 1, &8_u32);
        parts
    }

    fn refusal(parts: Parts) -> String {
        Parts::from_bytes(&parts.to_bytes(), "the machine").unwrap_err().to_string()
    }

    #[test]
    fn parts_come_back_by_kind_and_in_order() {
        let mut parts = Parts::from_bytes(&parts().to_bytes(), "the machine").unwrap();
        assert_eq!(parts.take::<String>("virtio-rng").unwrap(), "some");
        assert_eq!(parts.take::<u32>("virtio-blk"), Ok(7));
        assert_eq!(parts.take::<u32>("virtio-blk"), Ok(8));
        parts.finish().unwrap();
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut parts = parts();
        let error = parts.take::<u32>("virtio-net").unwrap_err();
        assert!(error.to_string().contains("virtio-net"), "{error}");
    }

    #[test]
    fn what_nobody_takes_is_named_with_its_version() {
        let mut parts = Parts::default();
        parts.add("virtio-foo", 3, &0_u8);
        let error = parts.finish().unwrap_err().to_string();
        assert!(error.contains("virtio-foo of version 3"), "{error}");
    }

    #[test]
    fn an_older_version_is_read_and_a_newer_one_is_refused_by_name() {
        let saved = |version| {
            let mut parts = Parts::default();
            parts.add("virtio-foo", version, &0_u8);
            parts
        };
        for version in [1, 2] {
            assert_eq!(saved(version).take_versions("virtio-foo", 2).unwrap().version, version);
        }
        for version in [0, 3] {
            let error = saved(version).take_versions("virtio-foo", 2).unwrap_err().to_string();
            let expected = format!("virtio-foo of version {version}");
            assert!(error.contains(&expected) && error.contains("up to 2"), "{error}");
        }
    }

    #[test]
    fn an_instance_is_there_once() {
        let Parts(mut twice) = parts();
        twice[2].instance = 0;
        let error = refusal(Parts(twice));
        assert!(error.contains("virtio-blk") && error.contains("twice"), "{error}");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert!(Parts::from_bytes(&[0xff; 7], "the machine").is_err());
        assert!(Parts::from_bytes(&[], "the machine").is_err());
    }
}

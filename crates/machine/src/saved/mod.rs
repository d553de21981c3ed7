//! The state of a machine as bytes, from which another machine continues.
//!
//! Saved state is what the guest can see, and what it has asked for and not had yet; it does not say what connects a
//! device to the host. A machine restores state before it runs, after it has been built like the machine that saved it:
//! the same devices in the same slots. State is untrusted: what could hurt the host is checked. Whether the state makes
//! sense to the guest is not.
//!
//! State is a list of parts, one of each device ([`Parts`]). The bytes of a part are postcard's
//! (<https://postcard.jamesmunns.com/wire-format>): fields in the order in which the structures have them, without
//! names. A change to a structure is another version of its part.

mod parts;

pub use parts::{Part, Parts};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The state is not of such a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The state of this makes no sense, or not here.
    #[error("the state of {0} does not fit this machine")]
    State(String),
    /// There is none of a device that the machine has.
    #[error("it has no state of the device {0}, which this machine has")]
    Missing(String),
    /// There is a device that the machine has not.
    #[error("it has a device {kind} of version {version}, and this machine has none")]
    Unknown {
        /// Its kind.
        kind: String,
        /// The version of its state.
        version: u32,
    },
    /// The state of a device is of another version.
    #[error("it has a device {kind} of version {found}; this biv knows versions up to {newest}")]
    Version {
        /// Its kind.
        kind: String,
        /// The version of the state.
        found: u32,
        /// The newest version that is known here.
        newest: u32,
    },
    /// There is state of one device twice.
    #[error("it has the device {0} (instance {1}) twice")]
    Twice(String, u32),
}

/// A device does not come to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a device does not finish what it has begun; try again later")]
pub struct Busy;

/// State as bytes.
///
/// # Panics
///
/// Never for the plain data that state is.
pub fn encode<T: Serialize>(state: &T) -> Vec<u8> {
    postcard::to_stdvec(state).expect("plain data can be written")
}

/// The state of `what`, all of these bytes.
///
/// # Errors
///
/// [`Unfit`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Unfit> {
    match postcard::take_from_bytes(bytes) {
        Ok((state, [])) => Ok(state),
        _ => Err(Unfit::State(what.to_owned())),
    }
}

/// Err unless it is so.
///
/// # Errors
///
/// [`Unfit`].
pub fn check(is_so: bool, what: &str) -> Result<(), Unfit> {
    if is_so { Ok(()) } else { Err(Unfit::State(what.to_owned())) }
}

/// Arrays that are longer than serde knows: `#[serde(with = "crate::saved::array")]`.
pub mod array {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::{Serialize, Serializer};

    /// As a sequence.
    ///
    /// # Errors
    ///
    /// The serializer's.
    pub fn serialize<S: Serializer, T: Serialize, const N: usize>(
        array: &[T; N],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        array.as_slice().serialize(serializer)
    }

    /// A sequence of that length.
    ///
    /// # Errors
    ///
    /// The deserializer's, and another length.
    pub fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
        deserializer: D,
    ) -> Result<[T; N], D::Error> {
        let elements = Vec::deserialize(deserializer)?;
        elements.try_into().map_err(|_| D::Error::custom("another length"))
    }
}

/// How the host's time-stamp counter now compares with the one that the state was saved with, and what the guest
/// sees of that.
///
/// A guest that has the paravirtual clock (paravirtual/clock.rs) takes its time from there, which goes on where it was
/// whatever the counter does. Its counter runs on meanwhile, as a computer's does while its memory is on a disk: then
/// the guest reads the host's own, and who executes its programs natively need not intercept that.
/// For any other guest the counter goes on where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterShift {
    /// How far the host's counter was ahead then (mod 2^64): it is behind now, as a rule.
    pub host: u64,
    /// What is added to the difference between the guest's counter and the host's (mod 2^64).
    pub guest: u64,
}

impl CounterShift {
    /// The host's counter was at `then` and is at `now`; the guest `has_clock` that does not depend on it.
    #[must_use]
    pub fn new(then: u64, now: u64, has_clock: bool) -> Self {
        let host = then.wrapping_sub(now);
        // No guest sees it run backwards.
        let runs_on = has_clock && now >= then;
        Self { host, guest: if runs_on { 0 } else { host } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_guest_with_a_clock_of_its_own_sees_the_counter_run_on() {
        let check = |then, now, has_clock, host: i64, guest: i64| {
            let expected =
                CounterShift { host: host.cast_unsigned(), guest: guest.cast_unsigned() };
            assert_eq!(CounterShift::new(then, now, has_clock), expected, "{then} {now}");
        };
        check(1000, 5000, true, -4000, 0);
        check(1000, 5000, false, -4000, -4000);
        // The host has been switched off and on, or is another.
        check(5000, 1000, true, 4000, 4000);
        check(7, 7, false, 0, 0);
    }
}

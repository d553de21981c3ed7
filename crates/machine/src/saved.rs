//! The state of a machine as bytes, to be taken up by another one.
//!
//! What is kept is what the guest can see, and what it has asked for and not had yet; what connects a
//! device to the host is not. A machine takes state up before it runs, and after it has been built like the
//! one that the state is of: the same devices in the same places. State is a stranger's word: what it says
//! is checked where it could hurt us. That it makes sense to the guest is the guest's affair.
//!
//! The bytes are postcard's (<https://postcard.jamesmunns.com/wire-format>): fields in the order in which
//! the structures have them, without names. A change to any structure is another format, and the version
//! of the whole says so.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The state is not of such a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state of {0} does not fit this machine")]
pub struct Unfit(pub String);

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
        _ => Err(Unfit(what.to_owned())),
    }
}

/// Err unless it is so.
///
/// # Errors
///
/// [`Unfit`].
pub fn check(is_so: bool, what: &str) -> Result<(), Unfit> {
    if is_so { Ok(()) } else { Err(Unfit(what.to_owned())) }
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

/// How the host's time-stamp counter now compares with the one that the state was saved with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterShift {
    /// What is added to the difference between the guest's counter and the host's (mod 2^64), so that the
    /// guest's goes on where it was.
    pub ticks: u64,
}

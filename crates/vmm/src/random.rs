//! Randomness of the host's.

use boot::Randomness;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::outcome::Error;

/// Random numbers for one boot.
pub(crate) fn for_boot() -> Result<Randomness, Error> {
    let mut bytes = [0; 48];
    fill(&mut bytes)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
    Ok(Randomness {
        physical: word(0),
        linear: word(8),
        seed: std::array::from_fn(|n| bytes[16 + n]),
    })
}

/// Fill with random bytes.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), Error> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(())
}

//! Random bytes from the host: fills the buffers that the driver offers, up to [`MAX_ENTROPY_BYTES`] of each chain,
//! which the specification allows (5.4.6.1).

mod bits;
#[cfg(test)]
mod tests;

use bits::{CLASS, NUMBER, QUEUE_SIZES};

use super::{Broken, Chain, Device, Kind, Serving, scatter};
use crate::limits::MAX_ENTROPY_BYTES;

/// What it is.
pub const KIND: Kind = Kind { name: "virtio-rng", number: NUMBER, class: CLASS };

/// Fills a buffer with random bytes; false if it cannot.
pub type RandomSource = Box<dyn FnMut(&mut [u8]) -> bool + Send>;

/// The device.
pub struct Entropy {
    source: RandomSource,
    chain: Chain,
}

impl Entropy {
    /// Random bytes come from there.
    pub fn new(source: RandomSource) -> Self {
        Self { source, chain: Chain::default() }
    }
}

impl Device for Entropy {
    fn kind(&self) -> Kind {
        KIND
    }

    fn features(&self) -> u64 {
        0
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn activate(&mut self, _features: u64) {}

    fn serve(&mut self, _queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut bytes = [0; MAX_ENTROPY_BYTES];
        while serving.pop(&mut self.chain)? {
            let room = Chain::bytes(&self.chain.writable).min(bytes.len() as u64) as usize;
            let bytes = &mut bytes[..room];
            // Where there is no randomness, the driver is given none.
            let bytes = if (self.source)(bytes) { &bytes[..] } else { &[] };
            let length = scatter(serving.memory(), &self.chain.writable, bytes)?;
            serving.finish(self.chain.head, length)?;
        }
        Ok(())
    }

    fn reset(&mut self) {}
}

//! The entropy device: randomness of the host's.

use devices::virtio::entropy;

use super::{Device, Slots};
use crate::outcome::Error;

/// A virtio entropy device, which gives the guest the host's randomness (getrandom(2)).
#[derive(Debug, Default)]
pub struct Entropy;

impl Device for Entropy {
    fn kind(&self) -> &'static str {
        entropy::KIND.name
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let device = entropy::Entropy::new(Box::new(|bytes| crate::random::fill(bytes).is_ok()));
        slots.add_virtio_with_thread("entropy", Box::new(device), Default::default())?;
        Ok(())
    }
}

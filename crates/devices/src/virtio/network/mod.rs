//! An Ethernet card. Frames go between its queues and a [`NetworkBackend`].
//!
//! 1. *Frames are not copied here.* The card tells the back-end where in guest memory frames are, or have to go, with
//!    their virtio headers.
//! 2. *No thread blocks.* A back-end that has no frame, or takes none, rings the doorbell when that changes
//!    ([`NetworkBackend::call_when_ready`]); it rings as well for a queue that has used up its share.
//! 3. *A frame is received whole or not at all.* Buffers are taken before the card knows whether there is a frame to
//!    fill them, and are kept for the next one.
//! 4. *The back-end may disappear* at any time: the driver sees the link go down, and what it sends is lost, as on a
//!    real card whose cable is pulled.

mod backend;
mod bits;
mod control;
mod lane;
#[cfg(test)]
mod tests;

use machine::saved::{self, Unfit};
use serde::{Deserialize, Serialize};

use super::{Broken, Chain, Device, Kind, Serving};
pub use backend::{Fault, Frame, NetworkBackend, Way};
use bits::{CLASS, CONTROL_QUEUE_SIZE, NUMBER, QUEUE_SIZE, configuration};
pub use bits::{Features, header};
use lane::{Frames, Receiving, Sending};

/// What it is.
pub const KIND: Kind = Kind { name: "virtio-net", number: NUMBER, class: CLASS };

/// Bytes of the header before each frame.
pub const HEADER_BYTES: usize = header::BYTES;

/// The most pairs of queues.
pub const MAX_PAIRS: usize = 8;

/// What a card is made from.
pub struct Settings {
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// The greatest packet, if it is to be told.
    pub mtu: Option<u16>,
    /// Pairs of queues, 1 to [`MAX_PAIRS`].
    pub pairs: usize,
}

/// What a driver has chosen through the control queue.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Choices {
    address: [u8; 6],
    pairs: u16,
    offloads: u64,
}

/// The device.
pub struct Network {
    backend: Box<dyn NetworkBackend>,
    settings: Settings,
    choices: Choices,
    sizes: Vec<u16>,
    receiving: Vec<Receiving>,
    sending: Vec<Sending>,
    accepted: Features,
    is_pulled: bool,
    chain: Chain,
}

impl Network {
    /// A card with this backend.
    pub fn new(backend: Box<dyn NetworkBackend>, mut settings: Settings) -> Self {
        settings.pairs = settings.pairs.clamp(1, MAX_PAIRS);
        let mut sizes = vec![QUEUE_SIZE; 2 * settings.pairs];
        sizes.push(CONTROL_QUEUE_SIZE);
        let choices = Choices { address: settings.address, pairs: 1, offloads: 0 };
        let mut it = Self {
            backend,
            settings,
            choices,
            sizes,
            receiving: Vec::new(),
            sending: Vec::new(),
            accepted: Features::empty(),
            is_pulled: false,
            chain: Chain::default(),
        };
        it.forget();
        it
    }

    fn forget(&mut self) {
        self.receiving = (0..self.settings.pairs).map(|_| Receiving::default()).collect();
        self.sending = (0..self.settings.pairs).map(|_| Sending::default()).collect();
    }

    /// Which is the control queue (5.1.2): without several pairs, it comes after the first.
    fn control_queue(&self) -> usize {
        if self.accepted.contains(Features::MULTIQUEUE) { 2 * self.settings.pairs } else { 2 }
    }

    /// The cable has been pulled, and the driver is told.
    fn pull(&mut self, serving: &mut Serving<'_>) {
        if !std::mem::replace(&mut self.is_pulled, true) {
            tracing::error!("{}; the guest's network is down", Fault::Pulled);
        }
        serving.configure(configuration::STATUS, &0u16.to_le_bytes());
    }
}

impl Device for Network {
    fn kind(&self) -> Kind {
        KIND
    }

    fn features(&self) -> u64 {
        let offered = self.backend.features() & (Features::HOST | Features::GUEST);
        let mut features = offered
            | Features::ADDRESS
            | Features::MERGEABLE
            | Features::STATUS
            | Features::CONTROL
            | Features::CONTROL_ADDRESS;
        features.set(Features::MTU, self.settings.mtu.is_some());
        features.set(Features::MULTIQUEUE, self.settings.pairs > 1);
        features.set(Features::GUEST_OFFLOADS, offered.contains(Features::GUEST_TSO4));
        features.bits()
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.sizes
    }

    fn configuration(&self) -> Vec<u8> {
        let mut bytes = self.choices.address.to_vec();
        bytes.extend((u16::from(!self.is_pulled) * configuration::LINK_UP).to_le_bytes());
        bytes.extend((self.settings.pairs as u16).to_le_bytes());
        bytes.extend(self.settings.mtu.unwrap_or(0).to_le_bytes());
        bytes
    }

    fn activate(&mut self, features: u64) {
        self.accepted = Features::from_bits_truncate(features);
        self.backend.set_features(self.accepted);
        self.backend.set_pairs(1);
        self.choices.offloads = (self.accepted & Features::GUEST).bits();
        self.choices.pairs = 1;
    }

    fn serve(&mut self, queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        if queue == self.control_queue() {
            return self.obey(serving);
        }
        let pair = queue / 2;
        if pair >= self.settings.pairs {
            return Ok(());
        }
        let served = match queue % 2 {
            0 if self.is_pulled => return Ok(()),
            0 => {
                let mergeable = self.accepted.contains(Features::MERGEABLE);
                let frames = Frames { pair, backend: &mut *self.backend, chain: &mut self.chain };
                self.receiving[pair].serve(frames, mergeable, serving)?
            }
            _ if self.is_pulled => return self.sending[pair].lose(&mut self.chain, serving),
            _ => {
                let frames = Frames { pair, backend: &mut *self.backend, chain: &mut self.chain };
                self.sending[pair].serve(frames, serving)?
            }
        };
        match served {
            Ok(()) => Ok(()),
            Err(Fault::NoMemory) => Err(Broken::NoMemory),
            Err(Fault::Pulled) => {
                self.pull(serving);
                Ok(())
            }
        }
    }

    fn taken(&self, queue: usize) -> u16 {
        let pair = queue / 2;
        let taken = match queue % 2 {
            _ if queue == self.control_queue() => None,
            0 => self.receiving.get(pair).map(Receiving::taken),
            _ => self.sending.get(pair).map(Sending::taken),
        };
        taken.unwrap_or(0)
    }

    fn save(&self) -> Vec<u8> {
        saved::encode(&self.choices)
    }

    fn restore(&mut self, _: u32, state: &[u8]) -> Result<(), Unfit> {
        let choices: Choices = saved::decode(state, "a network card")?;
        self.choose_address(choices.address);
        saved::check(self.choose_pairs(choices.pairs), "a network card")?;
        saved::check(self.choose_offloads(choices.offloads), "a network card")
    }

    fn accepts(&self, configuration: &[u8]) -> bool {
        // The address is the driver's, and the cable may have been pulled before.
        let ours = self.configuration();
        configuration.get(configuration::AFTER_STATUS..) == ours.get(configuration::AFTER_STATUS..)
    }

    fn reset(&mut self) {
        self.forget();
        self.backend.reset();
        self.accepted = Features::empty();
    }
}

//! An Ethernet card. Frames go between its queues and a [`Cable`], which is what the host has to offer.
//!
//! 1. *Frames are not copied here.* A cable is told where in guest memory they are to come from or to
//!    go to, with their virtio headers.
//! 2. *Nobody waits.* A cable that has no frame, or takes none, is asked to ring the doorbell when
//!    that changes ([`Cable::call_when_ready`]); so it is asked by a queue that has had its share.
//! 3. *A frame is received whole or not at all.* Buffers are taken before it is known whether there is a
//!    frame to fill them, and are kept for the next one.
//! 4. *The cable may be pulled* at any time: the driver sees the link go down, and what it sends is
//!    lost, as it is on a real card.

mod bits;
mod control;
mod lane;
#[cfg(test)]
mod tests;

use machine::saved::{self, Unfit};
use serde::{Deserialize, Serialize};

use super::{Broken, Chain, Device, Kind, Segment, Serving};
use bits::{CLASS, CONTROL_QUEUE_SIZE, NUMBER, QUEUE_SIZE, configuration};
pub use bits::{Features, header};
use lane::{Receiving, Sending};

/// What it is.
pub const KIND: Kind = Kind { name: "virtio-net", number: NUMBER, class: CLASS };

/// Bytes of the header before each frame.
pub const HEADER_BYTES: usize = header::BYTES;

/// The most pairs of queues.
pub const MAX_PAIRS: usize = 8;

/// What a queue does before another has its turn.
const SHARE_BYTES: u64 = 512 << 10;

/// Why a cable takes or gives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The other end has gone, for good.
    #[error("the other end of the network cable has gone")]
    Pulled,
    /// The driver's segments are not memory, or too many.
    #[error("a frame is not in memory")]
    NoMemory,
}

/// The way that frames go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the guest.
    In,
    /// From the guest.
    Out,
}

/// A frame of the driver's, with its header: where it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// Header and frame.
    pub segments: Vec<Segment>,
    /// Bytes of both.
    pub bytes: u64,
    /// The chain it came in.
    head: u16,
}

/// Where frames go and come from. No method waits. All frames have the header before them.
pub trait Cable: Send {
    /// What it can do of [`Features::HOST`] and [`Features::GUEST`].
    fn features(&self) -> Features;

    /// The driver has accepted these, and of [`Features::GUEST`] it wants these now.
    fn set_features(&mut self, features: Features);

    /// So many pairs of queues are in use.
    fn set_pairs(&mut self, pairs: usize);

    /// How many bytes the next frame has at most, with its header.
    ///
    /// # Errors
    ///
    /// [`Fault`].
    fn next_bytes(&mut self, pair: usize) -> Result<Option<u64>, Fault>;

    /// Receive a frame; how many bytes it has with its header, and `None` if there is none yet, or
    /// not all of it. In that case the next call has the same room. If it does not fit, it is lost
    /// and has no bytes. Whoever writes guest memory notes that.
    ///
    /// # Errors
    ///
    /// [`Fault`].
    fn receive(&mut self, pair: usize, room: &[Segment]) -> Result<Option<u64>, Fault>;

    /// Send frames, which are at least as long as header and addresses; how many are done with.
    ///
    /// # Errors
    ///
    /// [`Fault`].
    fn send(&mut self, pair: usize, frames: &[Frame]) -> Result<usize, Fault>;

    /// Ring the doorbell of the queue when frames can go this way. Once.
    fn call_when_ready(&mut self, pair: usize, way: Way);

    /// Forget the room for frames: it is no longer ours.
    fn reset(&mut self);
}

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
    cable: Box<dyn Cable>,
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
    /// A card with this cable.
    pub fn new(cable: Box<dyn Cable>, mut settings: Settings) -> Self {
        settings.pairs = settings.pairs.clamp(1, MAX_PAIRS);
        let mut sizes = vec![QUEUE_SIZE; 2 * settings.pairs];
        sizes.push(CONTROL_QUEUE_SIZE);
        let choices = Choices { address: settings.address, pairs: 1, offloads: 0 };
        let mut it = Self {
            cable,
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
        let cable = self.cable.features() & (Features::HOST | Features::GUEST);
        let mut features = cable
            | Features::ADDRESS
            | Features::MERGEABLE
            | Features::STATUS
            | Features::CONTROL
            | Features::CONTROL_ADDRESS;
        features.set(Features::MTU, self.settings.mtu.is_some());
        features.set(Features::MULTIQUEUE, self.settings.pairs > 1);
        features.set(Features::GUEST_OFFLOADS, cable.contains(Features::GUEST_TSO4));
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
        self.cable.set_features(self.accepted);
        self.cable.set_pairs(1);
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
            0 => self.receive(pair, serving)?,
            _ if self.is_pulled => return self.lose(pair, serving),
            _ => self.send(pair, serving)?,
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
        self.cable.reset();
        self.accepted = Features::empty();
    }
}

//! What a network card's cable leads to: a socket to another process of this host ([`stream`]), or a
//! network interface of the host's ([`tap`]).

mod stream;
mod tap;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use devices::virtio::Segment;
use devices::virtio::network::{self, Cable, MAX_PAIRS, Way};
use host::vectored::Pieces;

use rustix::event::PollFlags;

use super::io_thread::{Notifier, Source};
use super::{Device, Slots};
use crate::configuration::Error;
use crate::device_memory::{DeviceMemory, ranges};

/// A network card.
#[derive(Debug)]
pub struct Network {
    /// Where its cable leads.
    pub cable: CableEnd,
    /// Its Ethernet address.
    pub address: [u8; 6],
}

/// Where a cable leads.
#[derive(Debug)]
pub enum CableEnd {
    /// To a process that speaks as passt(1) and QEMU do: before each frame, its length as four bytes,
    /// the most significant first. A stream socket, which need not be non-blocking. Nobody there looks
    /// at checksums, because no wire comes between.
    Stream(OwnedFd),
    /// To a TAP interface of the host's, with a descriptor for each queue ([`host::tap::open`]).
    Tap(Vec<OwnedFd>),
}

/// The greatest packet of a card whose other end is a process: that of IPv4, rounded to words. The larger
/// they are, the fewer there are.
const STREAM_MTU: u16 = 65520;

impl Device for Network {
    fn kind(&self) -> &'static str {
        network::KIND.name
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let (device, sources) = card(*self, slots.memory);
        let notifier = Arc::new(Notifier::with_sources(&sources)?);
        slots.add_virtio_with_thread("network", Box::new(device), notifier)?;
        Ok(())
    }
}

/// A card's device, and what its thread waits for.
fn card(network: Network, memory: &DeviceMemory) -> (network::Network, Arc<[Source]>) {
    let Network { cable, address } = network;
    let source = |(pair, file)| Source::new(file, [2 * pair, 2 * pair + 1]);
    let (ends, mtu, is_tap) = match cable {
        CableEnd::Stream(end) => (vec![end], Some(STREAM_MTU), false),
        CableEnd::Tap(ends) => (ends, None, true),
    };
    let sources: Arc<[Source]> = ends.into_iter().take(MAX_PAIRS).enumerate().map(source).collect();
    let settings = network::Settings { address, mtu, pairs: sources.len() };
    let (memory, its) = (memory.clone(), Arc::clone(&sources));
    let cable: Box<dyn Cable> = match is_tap {
        true => Box::new(tap::Tap::new(memory, its)),
        false => Box::new(stream::Stream::new(memory, its)),
    };
    (network::Network::new(cable, settings), sources)
}

/// Look up segments.
fn pieces<'a>(
    memory: &'a DeviceMemory,
    segments: &[Segment],
) -> Result<Pieces<'a>, network::Fault> {
    Pieces::new(memory.map(), ranges(segments)).map_err(|_| network::Fault::NoMemory)
}

/// What a descriptor is to be ready for, that frames can go this way.
fn readiness(way: Way) -> PollFlags {
    match way {
        Way::In => PollFlags::IN,
        Way::Out => PollFlags::OUT,
    }
}

//! The back-ends of a network card ([`Netdev`]): a socket to another process of this host ([`stream`]), or a
//! network interface of the host's ([`tap`]).

mod stream;
mod tap;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use devices::virtio::Segment;
use devices::virtio::network::{self, MAX_PAIRS, NetworkBackend, Way};
use host::vectored::Pieces;

use rustix::event::PollFlags;

use super::io_thread::{EventSource, Notifier};
use super::split::{Cable, SplitNetwork};
use super::{Device, Slots};
use crate::device_memory::{DeviceMemory, ranges};
use crate::outcome::Error;

/// A network card.
#[derive(Debug)]
pub struct Network {
    /// Its back-end.
    pub netdev: Netdev,
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// A stream socket that listens: whoever connects to it, is this user or root, and sends a byte with a descriptor
    /// of memory, is the other end of a [`Netdev::Memory`] from then on. Only cards of Xen's interface have one.
    pub relink: Option<OwnedFd>,
}

/// What a card is connected to, as QEMU's option `-netdev` says it.
#[derive(Debug)]
pub enum Netdev {
    /// A process that speaks as passt(1) and QEMU do: before each frame, its length as four bytes,
    /// the most significant first. A stream socket, which need not be non-blocking. Nobody there looks
    /// at checksums, because no wire comes between.
    Stream(OwnedFd),
    /// The same in memory that both have, with a stream socket by which they wake each other
    /// ([`host::duplex::Duplex`]). Only cards of Xen's interface have it.
    Memory {
        /// The memory.
        memory: OwnedFd,
        /// The socket.
        bell: OwnedFd,
    },
    /// A TAP interface of the host's, with a descriptor for each queue ([`host::tap::open`]).
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
        if slots.board().has_split_devices() {
            let Self { netdev, address, relink } = *self;
            let cable = match netdev {
                Netdev::Stream(socket) => Cable::by_socket(socket)?,
                Netdev::Memory { memory, bell } => Cable::in_memory(memory, bell)?,
                Netdev::Tap(_) => return Err(Error::TapOfXen),
            };
            let device = SplitNetwork::new(cable, relink, address)?;
            return Ok(slots.board().add_split(Box::new(device))?);
        }
        let (device, sources) = card(*self, slots.memory)?;
        let notifier = Arc::new(Notifier::with_sources(&sources)?);
        slots.add_virtio_with_thread("network", Box::new(device), notifier)?;
        Ok(())
    }
}

/// A card's device, and what its thread waits for.
fn card(
    network: Network,
    memory: &DeviceMemory,
) -> Result<(network::Network, Arc<[EventSource]>), Error> {
    let Network { netdev, address, relink: _ } = network;
    let source = |(pair, file)| EventSource::new(file, [2 * pair, 2 * pair + 1]);
    let (ends, mtu, is_tap) = match netdev {
        Netdev::Stream(end) => (vec![end], Some(STREAM_MTU), false),
        Netdev::Tap(ends) => (ends, None, true),
        Netdev::Memory { .. } => return Err(Error::MemoryOfPc),
    };
    let sources: Arc<[EventSource]> =
        ends.into_iter().take(MAX_PAIRS).enumerate().map(source).collect();
    let settings = network::Settings { address, mtu, pairs: sources.len() };
    let (memory, its) = (memory.clone(), Arc::clone(&sources));
    let backend: Box<dyn NetworkBackend> = match is_tap {
        true => Box::new(tap::Tap::new(memory, its)),
        false => Box::new(stream::Stream::new(memory, its)),
    };
    Ok((network::Network::new(backend, settings), sources))
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

//! A back-end that is a TAP interface of the host. The kernel exchanges frames with their virtio headers, so that
//! checksums and segmentation are left to the hardware that has offloads for them. The kernel also chooses the queue of
//! an incoming frame: that of the vCPU which last sent a frame of the same flow.

use std::io::ErrorKind;
use std::sync::Arc;

use devices::virtio::Segment;
use devices::virtio::network::{Fault, Features, Frame, HEADER_BYTES, NetworkBackend, Way};
use host::tap::{offload, set_offloads, use_queue};
use rustix::io::Errno;

use super::{pieces, readiness};
use crate::device_memory::DeviceMemory;
use crate::devices::io_thread::EventSource;

/// Room for any frame, with its header.
const MOST_BYTES: u64 = HEADER_BYTES as u64 + 65535 + 18;

/// Datagrams that are left together, which Linux has since 6.2.
const DATAGRAMS: Features =
    Features::GUEST_USO4.union(Features::GUEST_USO6).union(Features::HOST_USO);

/// The back-end.
pub(super) struct Tap {
    memory: DeviceMemory,
    sources: Arc<[EventSource]>,
    features: Features,
}

impl Tap {
    pub(super) fn new(memory: DeviceMemory, sources: Arc<[EventSource]>) -> Self {
        let mut it = Self { memory, sources, features: Features::HOST | Features::GUEST };
        if it.offer(it.features).is_err() {
            it.features -= DATAGRAMS;
        }
        it
    }

    fn offer(&self, features: Features) -> std::io::Result<()> {
        let offloads = offloads(features);
        self.sources.iter().try_for_each(|source| set_offloads(source.file(), offloads))
    }

    fn source(&self, pair: usize) -> &EventSource {
        &self.sources[pair.min(self.sources.len() - 1)]
    }
}

impl NetworkBackend for Tap {
    fn features(&self) -> Features {
        self.features
    }

    fn set_features(&mut self, features: Features) {
        if let Err(error) = self.offer(features) {
            tracing::warn!("a tap interface does not take its offloads: {error}");
        }
    }

    fn set_pairs(&mut self, pairs: usize) {
        if self.sources.len() == 1 {
            return;
        }
        for (number, source) in self.sources.iter().enumerate() {
            // It fails where it is so already.
            let _ = use_queue(source.file(), number < pairs);
        }
    }

    fn next_bytes(&mut self, _: usize) -> Result<Option<u64>, Fault> {
        Ok(Some(MOST_BYTES))
    }

    fn receive(&mut self, pair: usize, room: &[Segment]) -> Result<Option<u64>, Fault> {
        let read = pieces(&self.memory, room)?.read(self.source(pair).file());
        match read {
            Ok(count) => {
                self.memory.note_filled(room, count as u64);
                Ok(Some(count as u64))
            }
            Err(error) if is_gone(&error) => Err(Fault::Pulled),
            Err(_) => Ok(None),
        }
    }

    fn send(&mut self, pair: usize, frames: &[Frame]) -> Result<usize, Fault> {
        for (number, frame) in frames.iter().enumerate() {
            match pieces(&self.memory, &frame.segments)?.write(self.source(pair).file()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(number),
                Err(error) if is_gone(&error) => return Err(Fault::Pulled),
                // A header that makes no sense, an interface that is down: it is lost.
                _ => {}
            }
        }
        Ok(frames.len())
    }

    fn call_when_ready(&mut self, pair: usize, way: Way) {
        self.source(pair).call_when(readiness(way));
    }

    fn reset(&mut self) {}
}

/// The interface was removed.
fn is_gone(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::BADFD.raw_os_error())
}

fn offloads(features: Features) -> u32 {
    if !features.contains(Features::GUEST_CHECKSUM) {
        return 0;
    }
    let all = [
        (Features::GUEST_TSO4, offload::TSO4),
        (Features::GUEST_TSO6, offload::TSO6),
        (Features::GUEST_ECN, offload::ECN),
        (Features::GUEST_USO4, offload::USO4),
        (Features::GUEST_USO6, offload::USO6),
    ];
    let has = |(feature, _): &&(Features, u32)| features.contains(*feature);
    all.iter().filter(has).fold(offload::CHECKSUM, |all, (_, bit)| all | bit)
}

//! Back-ends of a paravirtual machine's devices: what connects the rings of `xen-io` to the host.

mod cable;
mod disk;
mod network;

pub(super) use cable::Cable;
pub(super) use disk::SplitDisk;
pub(super) use network::SplitNetwork;

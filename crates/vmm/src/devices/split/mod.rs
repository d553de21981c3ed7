//! Back-ends of a paravirtual machine's devices: what connects the rings of `xen-io` to the host.

mod disk;
mod network;

pub(super) use disk::SplitDisk;
pub(super) use network::SplitNetwork;

//! Back-ends of a paravirtual machine's devices: what connects the rings of `xen-io` to the host.

mod disk;

pub(super) use disk::SplitDisk;

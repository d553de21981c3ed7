//! The port's extent, as test kernels ask QEMU for it (`iobase=0xf4,iosize=0x04`).

/// Ports; a write to any of them counts.
pub const PORTS: u16 = 4;

//! Paravirtual machines, by Xen's interface (`--xen`): what is different about them from a PC.
//!
//! There is no PCI bus, so there are no virtio devices. The console is the domain's first one, and the init's channel
//! is the second. Nothing shares the host's files, so that a root is packed into the guest's memory, or on a disk.

use spec::{Board, DiskRoot, Spec};

/// The modules that drive a paravirtual machine's disks and network card.
pub const DISK_DRIVERS: [&str; 1] = ["xen-blkfront"];
pub const NETWORK_DRIVERS: [&str; 1] = ["xen-netfront"];

/// Whether a machine is one.
pub fn is_paravirtual(spec: &Spec) -> bool {
    spec.machine.board == Board::Xen
}

/// Words of the kernel's command line: the console that it has instead of `console`, and where init finds us.
pub struct Words {
    /// The kernel's console.
    pub console: &'static str,
    /// Where the guest's init finds us.
    pub channel: &'static str,
    /// The greatest packet of a card that does not say it.
    pub mtu: &'static str,
}

/// Those of a machine, which has a network card or not.
pub fn words(spec: &Spec, has_network: bool) -> Words {
    match is_paravirtual(spec) {
        true => Words {
            console: "console=hvc0",
            channel: "biv.channel=hvc1",
            mtu: if has_network { "biv.mtu=65520" } else { "" },
        },
        // At the virtio port, if its kernel has a driver, else at the second serial port.
        false => Words { console: "console=ttyS0", channel: "biv.channel=vport,ttyS1", mtu: "" },
    }
}

/// What the guest calls the disk, or its partition, that its root is on.
pub fn root_device(spec: &Spec, root: &DiskRoot) -> String {
    match is_paravirtual(spec) {
        true => format!("x{}", root.device()),
        false => root.device(),
    }
}

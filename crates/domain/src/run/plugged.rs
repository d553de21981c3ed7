//! The list of a machine's devices, and the order in which they are plugged in.

use std::io;

use protocol::devices::Kind;
use spec::Spec;
use vmm::ConsolePort;
use vmm::devices::{BalloonHandle, Console, DebugExit, Device, Devices, Entropy, Window};

/// What was kept of devices that others want something of while the machine runs.
#[derive(Default)]
pub struct Handles {
    /// The balloon.
    pub balloon: Option<BalloonHandle>,
    /// The window of the virtio console.
    pub window: Option<Window>,
}

/// A device that takes nothing of the host: whether a machine has one, and what the guest's system needs for it.
struct Plain {
    is_wanted: fn(&Spec) -> bool,
    make: fn() -> Box<dyn Device>,
    /// The modules of a kernel that drive it, in the order in which they are loaded.
    drivers: &'static [&'static str],
    /// What the guest's init knows it by, if that is to see to it that it has a driver.
    kind: Option<Kind>,
}

/// All of these.
const PLAIN: [Plain; 2] = [
    Plain {
        is_wanted: Spec::has_entropy,
        make: || Box::new(Entropy),
        drivers: &["virtio-rng"],
        kind: Some(Kind::Entropy),
    },
    Plain {
        is_wanted: Spec::has_debug_exit,
        make: || Box::new(DebugExit),
        drivers: &[],
        kind: None,
    },
];

/// The order of devices on the PCI bus, by kind. It is a promise to snapshots, in which they have these slots; what is
/// not named comes after these, in the order of the list.
const BUS_ORDER: [&str; 8] = [
    "virtio-balloon",
    "virtio-console",
    "virtio-port",
    "virtio-vsock",
    "virtio-rng",
    "virtio-net",
    "virtio-blk",
    "virtio-fs",
];

/// Puts devices in the order in which every machine has them, whenever each was added.
pub fn put_in_bus_order(devices: &mut Devices) {
    let place = |kind: &str| BUS_ORDER.iter().position(|it| *it == kind);
    devices.sort_by_key(|device| place(device.kind()).unwrap_or(BUS_ORDER.len()));
}

/// The devices of a machine that take nothing of the host.
pub fn plain(spec: &Spec) -> impl Iterator<Item = Box<dyn Device>> {
    wanted_plain(spec).map(|device| (device.make)())
}

/// The modules of a kernel that drive these.
pub fn plain_drivers(spec: &Spec) -> impl Iterator<Item = &'static str> {
    wanted_plain(spec).flat_map(|device| device.drivers).copied()
}

/// What the guest's init knows these by.
pub fn plain_kinds(spec: &Spec) -> impl Iterator<Item = Kind> {
    wanted_plain(spec).filter_map(|device| device.kind)
}

fn wanted_plain(spec: &Spec) -> impl Iterator<Item = &'static Plain> {
    PLAIN.iter().filter(|device| (device.is_wanted)(spec))
}

/// Adds a virtio console; its window.
pub fn add_console(devices: &mut Devices, port: ConsolePort) -> io::Result<Window> {
    let (console, window) = Console::new(port)?;
    devices.push(Box::new(console));
    Ok(window)
}

#[cfg(test)]
mod tests {
    use vmm::devices::{Balloon, Post};

    use super::*;

    #[test]
    fn devices_are_on_the_bus_in_the_same_order_whenever_they_were_added() {
        let (balloon, _) = Balloon::new();
        let mut devices: Devices =
            vec![Box::new(Post), Box::new(Entropy), Box::new(DebugExit), Box::new(balloon)];
        put_in_bus_order(&mut devices);
        let kinds: Vec<_> = devices.iter().map(|device| device.kind()).collect();
        assert_eq!(kinds, ["virtio-balloon", "virtio-rng", "post", "isa-debug-exit"]);
    }
}

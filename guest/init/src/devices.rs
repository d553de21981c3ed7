//! Checks whether the kernel has drivers for the machine's devices: a virtio device with a driver
//! has a link to it in sysfs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use protocol::devices::{Devices, Kind};

/// The devices of the virtio bus.
const BUS: &str = "/sys/bus/virtio/devices";

/// The devices of a Xen domain's bus.
const XEN_BUS: &str = "/sys/bus/xen/devices";

/// What these are called, of a kind and before a number.
const XEN_KINDS: [(&str, Kind); 2] = [("vbd-", Kind::Disk), ("vif-", Kind::Network)];

/// What is missing of the devices that the machine was given.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// What the guest can do without.
    pub optional: Vec<String>,
    /// What it cannot.
    pub needed: Vec<String>,
}

/// Looks which of these devices have no driver.
pub fn missing(wanted: &[Devices]) -> Missing {
    let mut missing = Missing::default();
    if wanted.is_empty() {
        return missing;
    }
    // A kernel without a virtio bus has no directory for it.
    let mut driven = driven_below(Path::new(BUS)).unwrap_or_default();
    driven.extend(driven_of_xen(Path::new(XEN_BUS)).unwrap_or_default());
    // A kernel has this bus anywhere; only a domain has something on it, its second console at least.
    let is_domain = fs::read_dir(XEN_BUS).is_ok_and(|mut entries| entries.next().is_some());
    for devices in wanted {
        let found = driven.get(&(devices.kind as u32)).copied().unwrap_or(0);
        if found < usize::from(devices.count) {
            let list =
                if devices.is_optional { &mut missing.optional } else { &mut missing.needed };
            list.push(match is_domain {
                true => describe_of_xen(*devices, found),
                false => describe(*devices, found),
            });
        }
    }
    missing
}

/// How many devices of each number have a driver.
fn driven_below(bus: &Path) -> io::Result<BTreeMap<u32, usize>> {
    let mut driven = BTreeMap::new();
    for entry in fs::read_dir(bus)? {
        let path = entry?.path();
        let text = fs::read_to_string(path.join("device"))?;
        let number = u32::from_str_radix(text.trim().trim_start_matches("0x"), 16);
        if let Ok(number) = number
            && path.join("driver").exists()
        {
            *driven.entry(number).or_insert(0) += 1;
        }
    }
    Ok(driven)
}

/// The same of a Xen domain's devices; there are no others then.
fn driven_of_xen(bus: &Path) -> io::Result<BTreeMap<u32, usize>> {
    let mut driven = BTreeMap::new();
    for entry in fs::read_dir(bus)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let kind = XEN_KINDS.iter().find(|(prefix, _)| name.starts_with(prefix));
        if let Some((_, kind)) = kind
            && path.join("driver").exists()
        {
            *driven.entry(*kind as u32).or_insert(0) += 1;
        }
    }
    Ok(driven)
}

/// What a domain's kernel lacks.
fn describe_of_xen(devices: Devices, found: usize) -> String {
    let (what, driver, option) = match devices.kind {
        Kind::Network => ("the network card", "xen-netfront", "CONFIG_XEN_NETDEV_FRONTEND"),
        _ => ("the disks", "xen-blkfront", "CONFIG_XEN_BLKDEV_FRONTEND"),
    };
    let some = driven_only(devices, found);
    format!(
        "the guest's kernel has no driver for {what}{some}: {driver} must be built in ({option})"
    )
}

/// How many of them have a driver, if some have.
fn driven_only(devices: Devices, found: usize) -> String {
    match found {
        0 => String::new(),
        _ => format!(" (for {found} of {} only)", devices.count),
    }
}

fn describe(devices: Devices, found: usize) -> String {
    let (what, driver, option) = match devices.kind {
        Kind::Network => ("the network card", "virtio_net", "CONFIG_VIRTIO_NET"),
        Kind::Disk if devices.count == 1 => {
            ("the disk /dev/vda", "virtio_blk", "CONFIG_VIRTIO_BLK")
        }
        Kind::Disk => ("the disks", "virtio_blk", "CONFIG_VIRTIO_BLK"),
        Kind::Console => ("the virtio console", "virtio_console", "CONFIG_VIRTIO_CONSOLE"),
        Kind::Entropy => ("the entropy device", "virtio-rng", "CONFIG_HW_RANDOM_VIRTIO"),
        Kind::Balloon => ("the memory balloon", "virtio_balloon", "CONFIG_VIRTIO_BALLOON"),
        Kind::Sockets => ("virtio sockets", "vmw_vsock_virtio_transport", "CONFIG_VIRTIO_VSOCKETS"),
    };
    let some = driven_only(devices, found);
    format!(
        "the guest's kernel has no driver for {what}{some}: {driver} and virtio_pci must be built \
         in ({option}, \
         CONFIG_VIRTIO_PCI)"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_devices_with_a_driver_count() {
        let bus = std::env::temp_dir().join(format!("init-devices-{}", std::process::id()));
        let _ = fs::remove_dir_all(&bus);
        for (name, number, is_driven) in [
            ("virtio0", "0x0002\n", true),
            ("virtio1", "0x0002\n", false),
            ("virtio2", "0x001a\n", true),
        ] {
            let device = bus.join(name);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("device"), number).unwrap();
            if is_driven {
                symlink(".", device.join("driver")).unwrap();
            }
        }
        assert_eq!(driven_below(&bus).unwrap(), BTreeMap::from([(2, 1), (26, 1)]));
        fs::remove_dir_all(&bus).unwrap();
        assert!(driven_below(&bus).is_err());
    }

    #[test]
    fn what_is_missing_names_the_driver() {
        let text = describe(Devices { kind: Kind::Disk, count: 2, is_optional: false }, 1);
        for word in ["disks", "1 of 2", "virtio_blk", "CONFIG_VIRTIO_BLK"] {
            assert!(text.contains(word), "{text}");
        }
        let text = describe_of_xen(Devices { kind: Kind::Disk, count: 1, is_optional: false }, 0);
        for word in ["disks", "xen-blkfront", "CONFIG_XEN_BLKDEV_FRONTEND"] {
            assert!(text.contains(word), "{text}");
        }
        assert!(!text.contains("only") && !text.contains("virtio"), "{text}");
    }
}
